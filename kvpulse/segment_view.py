"""A reader's view of one segment: nothing in it is trusted.

Records and lane words are copied with `pread`, so that a file that is cut short cannot end the
process; the header page alone is mapped, because the commit word must be read in one piece.
"""

import errno
import mmap
import os
import stat
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from kvpulse.errors import NotAJournalError, UnreadableSegmentError, UnsupportedVersionError
from kvpulse.events import FORMAT_VERSION, HEADER_BYTES, MAGIC, RECORD_BYTES
from kvpulse.segment import (
    COMMIT_OFFSET,
    FIXED,
    SEGMENT_SUFFIX,
    STATE_CLOSED,
    STATE_OFFSET,
    SegmentHeader,
    unpack_header,
)
from kvpulse.stream_values import RECORD_DTYPE, Records, Words

SEGMENT_DIGITS: Final = 8


class DamagedSegmentError(Exception):
    """The header contradicts itself; caught by the reader, which goes on behind it."""


class LiveWords(NamedTuple):
    """The two words of a header that change."""

    state: int
    commit: int


class SegmentView:
    """One open segment."""

    __slots__ = ("_descriptor", "_map", "_words", "header", "number")

    def __init__(self, path: Path, number: int) -> None:
        """Open `path`.

        Raises:
            FileNotFoundError: The writer deleted it in the meantime.
            NotAJournalError: It does not start with the magic.
            UnsupportedVersionError: Another version of the format.
            DamagedSegmentError: The header is damaged, or this is no regular file.
            UnreadableSegmentError: The system does not let us read it.
        """
        self.number = number
        self._descriptor = _open(path)
        try:
            self.header = self._check(path)
            self._map = mmap.mmap(self._descriptor, HEADER_BYTES, access=mmap.ACCESS_READ)
        except BaseException:
            os.close(self._descriptor)
            raise
        self._words = memoryview(self._map).cast("Q")

    def live(self) -> LiveWords:
        """Read the state, then the commit word."""
        if os.fstat(self._descriptor).st_size < HEADER_BYTES:
            return LiveWords(STATE_CLOSED, 0)
        state = self._words[STATE_OFFSET // 8]
        return LiveWords(state, self._words[COMMIT_OFFSET // 8])

    def records(self, start: int, count: int) -> Records:
        """Copy `count` records; fewer where the file ends."""
        records = np.empty(count, RECORD_DTYPE)
        at = HEADER_BYTES + start * RECORD_BYTES
        got = os.preadv(self._descriptor, [records.view(np.uint8).data], at)
        return records[: got // RECORD_BYTES]

    def lane(self, start: int, count: int) -> Words:
        """Copy `count` lane words; fewer where the file ends."""
        words = np.empty(count, np.uint32)
        if count == 0:
            return words
        at = self.header.shape.lane_offset + 4 * start
        got = os.preadv(self._descriptor, [words.view(np.uint8).data], at)
        return words[: got // 4]

    def close(self) -> None:
        """Let go of the file."""
        self._words.release()
        self._map.close()
        os.close(self._descriptor)

    def _check(self, path: Path) -> SegmentHeader:
        info = os.fstat(self._descriptor)
        if not stat.S_ISREG(info.st_mode):
            raise DamagedSegmentError(f"{path} is no regular file")
        page = os.pread(self._descriptor, HEADER_BYTES, 0)
        if not page.startswith(MAGIC):
            raise NotAJournalError(path, page[: len(MAGIC)])
        if len(page) >= FIXED.size and (version := FIXED.unpack_from(page)[1]) != FORMAT_VERSION:
            raise UnsupportedVersionError(path, version, FORMAT_VERSION)
        header = unpack_header(page, file_bytes=info.st_size)
        if header is None or header.segment != self.number:
            raise DamagedSegmentError(f"{path} has a damaged header")
        return header


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        raise
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise DamagedSegmentError(f"{path} is a link") from error
        raise UnreadableSegmentError(path, error) from error


def segment_path(directory: Path, number: int) -> Path:
    """Return where a segment lies."""
    return directory / f"{number:0{SEGMENT_DIGITS}d}{SEGMENT_SUFFIX}"


def segment_numbers(directory: Path) -> list[int]:
    """Return the numbers of the published segments, oldest first; none where there is no directory.

    Raises:
        UnreadableSegmentError: The system does not let us look.
    """
    try:
        names = os.listdir(directory)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise UnreadableSegmentError(directory, error) from error
    return sorted(
        int(stem)
        for name in names
        if name.endswith(SEGMENT_SUFFIX)
        and len(stem := name.removesuffix(SEGMENT_SUFFIX)) >= SEGMENT_DIGITS
        and stem.isascii()
        and stem.isdigit()
    )
