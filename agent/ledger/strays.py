"""References that no live sequence holds: what a keyframe after a gap leaves over.

A keyframe states each block's count and each live sequence's table. Where a count is above what the
tables hold, somebody took a reference and never gave it back: a sequence that was seen to end with
it, or one whose end nobody saw. The latter is `UNKNOWN_OWNER`; it holds its references like a
sequence does, so that every law speaks about them too.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from agent.ledger.event_columns import EventColumns, Ints
from agent.ledger.reference_ledger import ReferenceLedger
from kvpulse.events import UNKNOWN_OWNER, Kind

MOST_UNSEEN: Final = 1 << 20  # a keyframe that leaves over more is damaged, and breaks the law


@dataclass(frozen=True, slots=True)
class Strays:
    """References by holder: one place for each, several for a block that is held several times."""

    owner: Ints
    block: Ints


def strays_of(counts: Ints, held: Ints, before: Strays) -> Strays:
    """Return who holds the references that no table of a keyframe accounts for.

    Nothing says that a sequence which had ended with a block gave it back meanwhile: as long as the
    block's count is above what live sequences hold, it stays that sequence's.

    Args:
        counts: [num_blocks] as the keyframe states them.
        held: [num_blocks] references in the keyframe's tables.
        before: What ended sequences held before it, the first to hold a block first.
    """
    extra = np.maximum(counts - held, 0)
    inside = before.block < len(extra)
    owner, block = before.owner[inside], before.block[inside]
    kept = _rank_within(block) < extra[block]
    owner, block = owner[kept], block[kept]
    extra = extra - np.bincount(block, minlength=len(extra))
    if int(extra.sum()) > MOST_UNSEEN:
        return Strays(owner, block)
    unseen = np.repeat(np.arange(len(extra)), extra)
    unknown = np.full(len(unseen), UNKNOWN_OWNER, np.int64)
    return Strays(np.concatenate([owner, unknown]), np.concatenate([block, unseen]))


def held_by_some(
    references: ReferenceLedger, owner_of_slot: Ints, owners: Collection[int]
) -> Strays:
    """Return the references of some sequences; `references` is settled."""
    owner = owner_of_slot[references.slot]
    chosen = np.isin(owner, list(owners))
    return Strays(owner[chosen], references.block[chosen].astype(np.int64))


def holders_of(
    events: EventColumns, picked: Ints, known: Collection[int]
) -> npt.NDArray[np.uint32]:
    """Return whose reference each picked record takes or drops while there are strays.

    A sequence that is not known and begins by dropping one ended in a gap: what it drops are
    strays.
    """
    owner = events.owner[picked]
    distinct, first = np.unique(owner, return_index=True)
    frees = events.kind[picked[first]] == Kind.FREE
    ghosts = [number for number in distinct[frees].tolist() if number not in known]
    return np.where(np.isin(owner, ghosts), np.uint32(UNKNOWN_OWNER), owner)


def _rank_within(block: Ints) -> Ints:
    """Return the how-manieth of its block each place is, from 0 on."""
    order = np.argsort(block, kind="stable")
    ordered = block[order]
    heads = np.searchsorted(ordered, ordered)
    rank = np.empty(len(block), np.int64)
    rank[order] = np.arange(len(block)) - heads
    return rank
