"""Give back what a finished segment reserved and did not use; does nothing but on Linux."""

import ctypes
import os
from typing import Final

from kvpulse.events import HEADER_BYTES, RECORD_BYTES
from kvpulse.segment import PAGE_BYTES, SegmentShape

# From <linux/falloc.h>: the file keeps its size, the pages go.
KEEP_SIZE: Final = 1
PUNCH_HOLE: Final = 2


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
