"""How the numbers of a quiet stretch lie in a chunk: so that little is left to compress.

A stretch of an idle engine holds audits and heartbeats: the same words again and again, and times
that differ in their low bytes. Words are laid out by kind of record and by place in it, every
number by bytes (all lowest bytes first), and a heartbeat's two clocks are stated as what they
differ from the record's own time.
"""

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from agent.ledger.event_columns import Ints, Words
from kvpulse.events import Kind
from kvpulse.stream_values import Records

HEARTBEAT_WORDS: Final = 8
HEARTBEAT_CLOCKS: Final = (4, 6)  # low words of wall and engine time
MINUS_ONE: Final = np.uint64(2**64 - 1)
QUIET_RATIO: Final = 0.1  # of the records are heartbeats


def is_quiet(records: Records) -> bool:
    """Return whether this layout suits a stretch."""
    beats = np.count_nonzero(records["kind"] == int(Kind.HEARTBEAT))
    return bool(beats >= QUIET_RATIO * len(records))


def by_bytes(values: npt.NDArray[Any]) -> bytes:
    """Return all lowest bytes, then all next ones, and so on."""
    width = values.dtype.itemsize
    return np.frombuffer(values.tobytes(), np.uint8).reshape(-1, width).T.tobytes()


def from_bytes(data: bytes | memoryview, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return the numbers of `by_bytes`."""
    kind = np.dtype(dtype)
    planes = np.frombuffer(data, np.uint8).reshape(kind.itemsize, -1)
    return np.frombuffer(planes.T.tobytes(), kind)


def lay_out(records: Records, used: Ints, lane: Words) -> Words:
    """Return a stretch's lane words by kind and place.

    Args:
        records: The records.
        used: How many lane words each has.
        lane: Those words, in the order of the records.
    """
    laid = with_clocks(records, used, lane, MINUS_ONE)
    return laid[order_of(records, used)]


def take_up(records: Records, used: Ints, laid: Words) -> Words:
    """Return the lane words of `lay_out` in the order of the records."""
    lane = np.empty_like(laid)
    lane[order_of(records, used)] = laid
    return with_clocks(records, used, lane, np.uint64(1))


def order_of(records: Records, used: Ints) -> Ints:
    """Return which word of the lane stands at each place of the layout."""
    starts = np.cumsum(used) - used
    total = int(used.sum())
    kind = np.repeat(records["kind"].astype(np.int64), used)
    place = np.arange(total) - np.repeat(starts, used)
    order: Ints = np.lexsort((np.arange(total), place, kind))
    return order


def with_clocks(records: Records, used: Ints, lane: Words, sign: np.uint64) -> Words:
    """Return a lane with every heartbeat's clocks moved by the record's time, modulo 2^64."""
    beats = np.flatnonzero((records["kind"] == int(Kind.HEARTBEAT)) & (used == HEARTBEAT_WORDS))
    moved = lane.copy()
    at = (np.cumsum(used) - used)[beats]
    times = records["ts_ns"][beats].astype(np.uint64) * sign
    for low in HEARTBEAT_CLOCKS:
        clock = moved[at + low].astype(np.uint64) | moved[at + low + 1].astype(np.uint64) << 32
        clock = clock + times
        moved[at + low] = (clock & np.uint64(0xFFFF_FFFF)).astype(np.uint32)
        moved[at + low + 1] = (clock >> np.uint64(32)).astype(np.uint32)
    return moved
