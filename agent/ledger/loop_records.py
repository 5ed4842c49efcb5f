"""The few records that the ledger goes through one by one, read out of the columns in bulk."""

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from agent.ledger.event_columns import Bytes, EventColumns, Ints, kind_table
from agent.ledger.request_state import NUM_CAUSES
from agent.ledger.runs import lengths_of
from kvpulse.events import Kind, WaitCause

BUSY: Final = int(WaitCause.ENGINE_BUSY)
WAIT: Final = int(Kind.WAIT)
LOOP_KINDS: Final = kind_table(
    (
        Kind.ALLOCATE_FAILED,
        Kind.ARRIVE,
        Kind.WAIT,
        Kind.ADMIT,
        Kind.REJECT,
        Kind.PREFIX_HIT,
        Kind.PREEMPT,
        Kind.RESUME,
        Kind.FORK,
        Kind.FIRST_TOKEN,
        Kind.FINISH,
    )
)


class Act(NamedTuple):
    """One record of the loop."""

    record: int
    t_ns: int
    flags: int
    tenant: int
    owner: int
    first: int
    n: int
    aux: int


class Bursts(NamedTuple):
    """Records of the loop, with neighbouring `wait` records of one moment taken together."""

    record: Ints  # the first one
    kind: Bytes
    t_ns: Ints
    size: Ints


def bursts_of(events: EventColumns, picked: Ints) -> Bursts:
    kind, t_ns = events.kind[picked], events.t_ns[picked]
    is_wait = kind == WAIT
    goes_on = is_wait[1:] & is_wait[:-1] & (t_ns[1:] == t_ns[:-1])
    is_head = np.ones(len(picked), bool)
    np.logical_not(goes_on, out=is_head[1:])
    heads = np.flatnonzero(is_head)
    size = lengths_of(heads, len(picked))
    return Bursts(picked[heads], kind[heads], t_ns[heads], size)


def waits_of(events: EventColumns, picked: Ints) -> Iterator[tuple[int, int, int]]:
    """Return owner, cause and blocker of each `wait`."""
    at = picked[events.kind[picked] == WAIT]
    cause = events.aux[at]
    cause = np.where((cause > 0) & (cause < NUM_CAUSES), cause, BUSY)
    blocker = np.where(events.n[at] > 0, events.first[at], 0)
    return zip(events.owner[at].tolist(), cause.tolist(), blocker.tolist(), strict=True)


def acts_of(events: EventColumns, picked: Ints) -> Iterator[Act]:
    """Return every record of the loop that is no `wait`."""
    at = picked[events.kind[picked] != WAIT]
    columns = (getattr(events, name)[at].tolist() for name in Act._fields[1:])
    return map(Act._make, zip(at.tolist(), *columns, strict=True))
