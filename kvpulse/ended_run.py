"""One earlier run of an engine whose writer is gone: what it keeps, and what of it may go.

Nothing here is trusted. A folder or file that is a link, belongs to another user, or does not look
like what a Recorder wrote, stays as it is; so does every run whose end is not certain.
"""

import os
import re
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from kvpulse.disk_usage import bytes_on_disk
from kvpulse.events import HEADER_BYTES, MAGIC
from kvpulse.lifetime_lock import LOCK_FILE, is_released
from kvpulse.loss_page import LOSS_FILE, read_loss_page
from kvpulse.segment import (
    RESERVED_SUFFIX,
    ProcessIdentity,
    SegmentHeader,
    unpack_header,
)
from kvpulse.segment_tail import give_back_after_kill

ENDED_FILE: Final = "ended"  # made when the run was first seen to be over; its mtime says when

_SEGMENT: Final = re.compile(r"([0-9]{8,})\.seg(\.tmp)?")
_OPEN: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class OldSegment(NamedTuple):
    """A segment that has a newer one with a good header behind it."""

    name: str
    num_bytes: int


@dataclass(slots=True)
class EndedRun:
    """A run that is over. `older` may be unlinked, oldest first, without an unstated loss."""

    directory: Path
    newest_ns: int  # wall clock at the start of its newest segment
    ended_ns: int  # when it was first seen to be over
    is_foreign: bool  # something else lies in it
    older: list[OldSegment] = field(default_factory=list)

    def drop_oldest(self) -> int:
        """Unlink the oldest segment but the newest; return the bytes that this gave back."""
        segment = self.older.pop(0)
        if not _is_segment(self.directory / segment.name):
            self.older.clear()  # not what it was: hands off the whole run
            return 0
        _unlink(self.directory / segment.name)
        return segment.num_bytes

    def remove(self) -> int:
        """Remove the whole run, unless something else lies in it; return the bytes given back."""
        if self.is_foreign:
            return 0
        num_bytes = bytes_on_disk(self.directory)
        try:
            segments = [name for name in os.listdir(self.directory) if _SEGMENT.fullmatch(name)]
            for name in (*segments, LOSS_FILE, ENDED_FILE, LOCK_FILE):
                _unlink(self.directory / name)
            os.rmdir(self.directory)
        except OSError:
            pass  # something else came in meanwhile, and stays
        return num_bytes


def look_at(directory: Path, process: ProcessIdentity, *, now_ns: int) -> EndedRun | None:
    """Return an earlier run that is certainly over, or None; frees what it had reserved.

    A run of this very process is left alone without a look at its lock, which looking would drop.
    """
    loss = read_loss_page(directory)
    if loss is None or loss.process == process or not is_released(directory):
        return None
    files = {entry.name: entry.stat(follow_symlinks=False) for entry in os.scandir(directory)}
    segments: list[tuple[int, str]] = []
    is_foreign = False
    for name, status in list(files.items()):
        is_ours = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()
        found = _SEGMENT.fullmatch(name)
        if not is_ours or (found is None and name not in (ENDED_FILE, LOSS_FILE, LOCK_FILE)):
            is_foreign = True
        elif found is not None and name.endswith(RESERVED_SUFFIX):
            _unlink(directory / name)
            del files[name]
        elif found is not None:
            segments.append((int(found[1]), name))
    run = EndedRun(
        directory,
        newest_ns=int(os.stat(directory).st_mtime_ns),
        ended_ns=_first_seen_ended(directory, files.get(ENDED_FILE), now_ns),
        is_foreign=is_foreign,
    )
    _sort_segments(run, sorted(segments), files)
    return run


def _sort_segments(
    run: EndedRun, segments: list[tuple[int, str]], files: dict[str, os.stat_result]
) -> None:
    """Find the newest segment whose header is good; all before it may go."""
    for at, (number, name) in reversed(list(enumerate(segments))):
        path = run.directory / name
        header = _header(path, number)
        if header is None:
            continue  # damaged: an older one has to state the totals
        run.newest_ns = header.wall_ns
        run.older = [OldSegment(older, files[older].st_blocks * 512) for _, older in segments[:at]]
        if ENDED_FILE not in files and at == len(segments) - 1:
            give_back_after_kill(str(path), header.shape)
        return


def _first_seen_ended(directory: Path, mark: os.stat_result | None, now_ns: int) -> int:
    """Return since when the run is known to be over, marking it now if it is not yet."""
    if mark is not None:
        return mark.st_mtime_ns
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        os.close(os.open(directory / ENDED_FILE, flags, 0o600))
    except OSError:
        return now_ns  # a full file system, or another helper was first
    return now_ns


def _header(path: Path, number: int) -> SegmentHeader | None:
    try:
        descriptor = os.open(path, _OPEN)
    except OSError:
        return None
    try:
        page = os.pread(descriptor, HEADER_BYTES, 0)
        size = os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)
    header = unpack_header(page, file_bytes=size) if page.startswith(MAGIC) else None
    return header if header is not None and header.segment == number else None


def _is_segment(path: Path) -> bool:
    """Say whether a file still is one of our segments, whole or damaged."""
    try:
        descriptor = os.open(path, _OPEN)
    except FileNotFoundError:
        return True  # another helper was first
    except OSError:
        return False
    try:
        status = os.fstat(descriptor)
        is_ours = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()
        return is_ours and os.pread(descriptor, len(MAGIC), 0) == MAGIC
    finally:
        os.close(descriptor)


def _unlink(path: Path) -> None:
    try:
        os.unlink(path)
    except OSError:
        return  # gone already, or permission lost
