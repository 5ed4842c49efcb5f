"""Give back what a finished segment reserved and did not use; does nothing but on Linux."""

import ctypes
import os
from struct import Struct
from typing import Final

from kvpulse.events import FORMS, HEADER_BYTES, RECORD, RECORD_BYTES, REFUSED_KIND, Kind, LaneForm
from kvpulse.segment import COMMIT_OFFSET, PAGE_BYTES, SegmentShape

# From <linux/falloc.h>: the file keeps its size, the pages go.
KEEP_SIZE: Final = 1
PUNCH_HOLE: Final = 2

_COMMIT: Final = Struct("<Q")
_LANE_WIDTH: Final = {LaneForm.PAIRS: 2, LaneForm.HASHED_IDS: 3}
_RECORDS_AT_ONCE: Final = 1024


def give_back_unused(path: str, shape: SegmentShape, *, records: int, words: int) -> None:
    """Free the pages behind the last record and behind the last lane word.

    A short run then takes kilobytes instead of a whole segment of memory. Readers see zeros there,
    behind the commit word.
    """
    ranges = (
        (HEADER_BYTES + records * RECORD_BYTES, shape.lane_offset),
        (shape.lane_offset + 4 * words, shape.file_bytes),
    )
    try:
        fallocate = ctypes.CDLL(None, use_errno=True).fallocate
        fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    except (OSError, AttributeError):
        return  # nothing is wrong with a segment that keeps its reserve
    try:
        for start, end in ranges:
            first = -(-start // PAGE_BYTES) * PAGE_BYTES
            length = end // PAGE_BYTES * PAGE_BYTES - first
            if length > 0:
                fallocate(descriptor, KEEP_SIZE | PUNCH_HOLE, first, length)
    finally:
        os.close(descriptor)


def give_back_after_kill(path: str, shape: SegmentShape) -> None:
    """Free what a writer that was killed left unused in its last segment.

    Nothing is freed where the records do not say for certain which lane words they use.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        records = _COMMIT.unpack(os.pread(descriptor, _COMMIT.size, COMMIT_OFFSET))[0]
        words = _lane_end(descriptor, shape, records)
    finally:
        os.close(descriptor)
    if words is not None:
        give_back_unused(path, shape, records=records, words=words)


def _lane_end(descriptor: int, shape: SegmentShape, records: int) -> int | None:
    """Return where the lane words of the last record that uses any end; None: uncertain."""
    if records > shape.record_capacity:
        return None
    end = records
    while end > 0:
        start = max(0, end - _RECORDS_AT_ONCE)
        length = (end - start) * RECORD_BYTES
        stretch = os.pread(descriptor, length, HEADER_BYTES + start * RECORD_BYTES)
        if len(stretch) < length:
            return None
        uses = [_lane_stretch(*fields) for fields in RECORD.iter_unpack(stretch)]
        if None in uses:
            return None
        if words := max((use for use in uses if use is not None), default=0):
            return words if words <= shape.lane_capacity else None
        end = start
    return 0


def _lane_stretch(
    _ts: int,
    _seq: int,
    kind: int,
    _flags: int,
    _tenant: int,
    _owner: int,
    first: int,
    n: int,
    *_: int,
) -> int | None:
    """Return where a record's lane words end, 0 if it has none; None for an unknown kind."""
    if kind == REFUSED_KIND:
        return 0
    try:
        lane = FORMS[Kind(kind)].lane
    except ValueError:
        return None
    is_inline = n == 1 and lane in (LaneForm.IDS, LaneForm.WORDS) and kind != Kind.KEYFRAME
    words = 0 if is_inline else n * _LANE_WIDTH.get(lane, 1)
    return first + words if words else 0
