"""What a reader of a stream hands out: records, losses, where it stands."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from kvpulse.events import FORMS, MAX_KINDS, Kind, LaneForm

RECORD_DTYPE: Final[np.dtype[np.void]] = np.dtype(
    [
        ("ts_ns", "<u8"),
        ("seq", "<u4"),
        ("kind", "u1"),
        ("flags", "u1"),
        ("tenant", "<u2"),
        ("owner", "<u4"),
        ("first", "<u4"),
        ("n", "<u4"),
        ("aux", "<u4"),
    ]
)
Records = npt.NDArray[np.void]
Words = npt.NDArray[np.uint32]

NO_EVENTS: Final = (0,) * MAX_KINDS


class GapReason(StrEnum):
    """Why events are missing."""

    DELETED = "deleted"  # the size bound, or somebody's hand
    NOT_WRITTEN = "not_written"  # no segment was to be had, or the event did not fit a record
    DAMAGED = "damaged"


class WriterState(StrEnum):
    """What became of the process that writes a stream."""

    ALIVE = "alive"
    FINISHED = "finished"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class Position:
    """How far a stream was read; store it with what was read, in one transaction.

    Attributes:
        segment: Number of the segment to read next.
        record: Index in it of the next record.
        seq: Records accounted for, read or lost.
        counts: Events accounted for per kind code, read or lost.
        lost: Events lost per kind code.
    """

    segment: int = 0
    record: int = 0
    seq: int = 0
    counts: tuple[int, ...] = NO_EVENTS
    lost: tuple[int, ...] = NO_EVENTS


@dataclass(frozen=True, slots=True)
class Gap:
    """Records that are known to be missing.

    Attributes:
        lost: Events per kind code that are now known to be lost. After damage inside a segment
            they are known only at the next one, so this may be all zero, and a later gap may
            have an empty range of records.
        first_seq: First missing record's number; the range is [first_seq, end_seq).
        start_ns: Engine time of the last record before, 0 if unknown.
        end_ns: Engine time from which on nothing is missing, 0 if unknown.
        reason: Why.
    """

    lost: tuple[int, ...]
    first_seq: int
    end_seq: int
    start_ns: int
    end_ns: int
    reason: GapReason


class ClockPair(NamedTuple):
    """Two clocks read at one moment."""

    wall_ns: int
    monotonic_ns: int


@dataclass(frozen=True, slots=True)
class Batch:
    """Consecutive records of one segment.

    Attributes:
        records: `RECORD_DTYPE`; kinds that this version does not know are left out.
        lane: The stretch of lane words that the records use.
        lane_base: A record's words start at `lane[first - lane_base]`.
        seq0: Number of the first record accounted for by this batch.
        first_in_segment: The records are the first of their segment; with keyframes, records[0] is
            one.
        gap: What is known to be missing just before these records.
        clock: The segment's pair of clocks.
        position: Where to go on after this batch.
        unknown: How many records of unknown kinds were left out.
    """

    records: Records
    lane: Words
    lane_base: int
    seq0: int
    first_in_segment: bool
    gap: Gap | None
    clock: ClockPair
    total_blocks: int
    host_blocks: int
    block_size: int
    position: Position
    unknown: int


@dataclass(frozen=True, slots=True)
class StreamStatus:
    """How a stream stands, read or not."""

    writer: WriterState
    newest_seq: int  # records committed or counted as not written
    behind_records: int
    bytes_on_disk: int
    segments: int
    not_written: int  # events, all kinds, that found no segment so far
    paused: bool  # the writer has no segment to write into


_KNOWN = {int(kind): FORMS[kind] for kind in Kind}
KNOWN_KIND: Final[npt.NDArray[np.bool_]] = np.array([code in _KNOWN for code in range(256)])
COUNTS_BLOCKS: Final[npt.NDArray[np.bool_]] = np.array(
    [code in _KNOWN and _KNOWN[code].counts_blocks for code in range(256)]
)
_WIDTH = {LaneForm.PAIRS: 2, LaneForm.HASHED_IDS: 3}
# Lane words for each of a record's n.
LANE_WIDTH: Final[npt.NDArray[np.uint64]] = np.array(
    [_WIDTH.get(_KNOWN[code].lane, 1) if code in _KNOWN else 0 for code in range(256)],
    dtype=np.uint64,
)
# A single id or word stands in `first` itself.
SINGLE_INLINE: Final[npt.NDArray[np.bool_]] = np.array(
    [
        code in _KNOWN
        and code != Kind.KEYFRAME
        and _KNOWN[code].lane in {LaneForm.IDS, LaneForm.WORDS}
        for code in range(256)
    ]
)


def lane_words(records: Records) -> npt.NDArray[np.uint64]:
    """Return how many lane words each record uses, whatever its bytes say."""
    kind = records["kind"]
    n = records["n"].astype(np.uint64)
    words: npt.NDArray[np.uint64] = n * LANE_WIDTH[kind]
    words[SINGLE_INLINE[kind] & (n == 1)] = 0
    return words


def event_counts(records: Records) -> npt.NDArray[np.int64]:
    """Return how many events each record stands for."""
    counts: npt.NDArray[np.int64] = np.where(
        COUNTS_BLOCKS[records["kind"]], records["n"].astype(np.int64), 1
    )
    return counts


def expand_words(batch: Batch, index: int) -> Words:
    """Return one record's payload words: a single inline one, or its stretch of the lane."""
    record = batch.records[index : index + 1]
    words = int(lane_words(record)[0])
    if words == 0:
        inline = SINGLE_INLINE[record["kind"][0]] and record["n"][0] == 1
        return record["first"].astype(np.uint32) if inline else np.empty(0, np.uint32)
    start = int(record["first"][0]) - batch.lane_base
    return batch.lane[start : start + words]
