"""The helper thread that has the next segment ready before it is needed.

It makes the stream's directory, lock and loss page, reserves one segment ahead, unlinks the oldest
one at the size bound, those of ended runs first, and notices when somebody removed the directory.
The engine's thread only looks at `ready`; it never waits for this thread. Each attribute is written
by one thread at a time: `ready` is filled here when it is None and emptied by the writer, both
single stores.
"""

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from kvpulse.ended_runs import EndedRuns
from kvpulse.lifetime_lock import LifetimeLock
from kvpulse.loss_page import LossPage
from kvpulse.segment import (
    RESERVED_SUFFIX,
    SEGMENT_SUFFIX,
    SegmentShape,
    WritableSegment,
    ordering_in_force,
    process_identity,
    reserve_segment,
)

WATCH_SECONDS: Final = 0.5
FIRST_RETRY_SECONDS: Final = 0.05
LONGEST_RETRY_SECONDS: Final = 2.0
CLOSING_SECONDS: Final = 5.0


class SegmentReserver:
    """Keeps one segment of a stream reserved ahead."""

    def __init__(self, directory: Path, shape: SegmentShape, *, max_segments: int) -> None:
        self.directory = directory
        self.shape = shape
        self.ready: WritableSegment | None = None
        self._handed: WritableSegment | None = None  # taken, and not published yet
        self.loss: LossPage | None = None
        self.process = process_identity()
        self.ordering = ordering_in_force()
        self.failure = ""  # why the last attempt failed; empty when it did not
        self.gone_number = -1  # the published segment that was found removed
        self.on_gone: Callable[[], None] | None = None
        self._max_segments = max_segments
        self._ended = EndedRuns(directory.parent, directory.name, self.process)
        self._next_number = 0
        self._is_made = False
        self._kept: list[int] = []
        self._retired: list[WritableSegment] = []
        self._untouched: list[WritableSegment] = []  # page faults to come, the oldest first
        self._lock: LifetimeLock | None = None
        self._old_pages: list[LossPage] = []
        self._old_locks: list[LifetimeLock] = []
        self._wake = threading.Event()
        self._stopping = False
        self._abandoned = False
        self._thread = threading.Thread(target=self._run, name="kvpulse-reserver", daemon=True)

    def start(self) -> None:
        """Begin to work ahead."""
        self._thread.start()

    def take(self) -> WritableSegment | None:
        """Hand the reserved segment over, or None; called by the writer, never blocks."""
        segment = self.ready
        if segment is not None:
            # First held, then no longer ready: else the helper would reserve the same number again.
            self._handed = segment
            self.ready = None
        return segment

    def published(self, segment: WritableSegment) -> None:
        """Learn that `segment` has its name now."""
        self._kept.append(segment.number)
        self._next_number = segment.number + 1
        self._handed = None
        self._wake.set()

    def rejected(self, segment: WritableSegment, why: str) -> None:
        """Learn that `segment` could not get its name."""
        self.failure = why
        self._retired.append(segment)
        self._handed = None
        self._wake.set()

    def retire(self, segment: WritableSegment) -> None:
        """Unmap a segment that the writer is done with, off the engine's thread."""
        self._retired.append(segment)
        self._wake.set()

    def attempt(self) -> bool:
        """Try to have a segment ready."""
        try:
            self._ensure_stream()
            self._trim(self._max_segments - 1)
            self.ready = segment = self._reserve()
            self._untouched = [*self._untouched[-1:], segment]
        except (OSError, ValueError) as error:
            self.failure = str(error)
            return False
        self.failure = ""
        return True

    def stop(self) -> None:
        """End the thread and give back everything but what was published."""
        if self._abandoned:
            return
        self._abandoned = True
        self.join()
        self._drop_retired()
        segment = self.take()
        if segment is not None:
            _unlink(Path(segment.reserved_path))
            segment.unmap()
        for page in [*self._old_pages, *([self.loss] if self.loss else [])]:
            page.unmap()
        for lock in [*self._old_locks, *([self._lock] if self._lock else [])]:
            lock.release()

    def join(self) -> None:
        """End the thread."""
        self._stopping = True
        self._wake.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(CLOSING_SECONDS)

    def abandon(self) -> None:
        """In a forked child: let go without touching the parent's files."""
        self._abandoned = True
        for lock in [*self._old_locks, *([self._lock] if self._lock else [])]:
            lock.release()

    def _run(self) -> None:
        self._ended.look()
        self._ended.remove_old(self._room_bytes())
        delay = FIRST_RETRY_SECONDS
        while not self._stopping:
            self._drop_retired()
            pause = WATCH_SECONDS
            if self.ready is None and self._handed is None and not self.attempt():
                pause = delay
                delay = min(2 * delay, LONGEST_RETRY_SECONDS)
            else:
                delay = FIRST_RETRY_SECONDS
            self._ended.bound(self._room_bytes())
            self._watch()
            self._touch_ahead()
            self._wake.wait(pause)
            self._wake.clear()

    def _touch_ahead(self) -> None:
        """Take the engine's page faults for it, until the next segment is due."""
        while self._untouched and self.ready is not None and not self._stopping:
            if not self._untouched[0].touch():
                del self._untouched[0]

    def _reserve(self) -> WritableSegment:
        while True:
            try:
                return reserve_segment(self.directory, self._next_number, self.shape)
            except FileExistsError:
                # Left by an attempt that could not be published.
                os.unlink(self.directory / f"{self._next_number:08d}{RESERVED_SUFFIX}")
            except OSError as error:
                # A full file system is a bound like any other: the oldest history makes room.
                if error.errno != errno.ENOSPC or not self._give_up_oldest():
                    raise

    def _give_up_oldest(self) -> bool:
        """Unlink the oldest segment there is: of an ended run, else of this one."""
        # Only this thread knows of ended runs; an attempt of the engine's thread finds none.
        is_helper = threading.current_thread() is self._thread
        return (is_helper and self._ended.drop_oldest()) or self._trim(len(self._kept) - 1)

    def _room_bytes(self) -> int:
        """Return what this run, with the segment it holds ready, leaves to all others."""
        return (self._max_segments - len(self._kept) - 1) * self.shape.file_bytes

    def _ensure_stream(self) -> None:
        """Make directory, lock and loss page, also again after somebody removed them."""
        if not (self._is_made and self.directory.exists()):
            make_private_directory(self.directory.parent)
            self.directory.mkdir(mode=0o700)
            self._is_made = True
            self._kept.clear()
            # The writer may still look at the old page; both are let go at the end.
            self._old_locks += [self._lock] if self._lock is not None else []
            self._old_pages += [self.loss] if self.loss is not None else []
            self._lock = self.loss = None
        if self._lock is None:
            self._lock = LifetimeLock(self.directory)
        if self.loss is None:
            self.loss = LossPage(self.directory, self.process)

    def _trim(self, keep: int) -> bool:
        """Unlink the oldest segments until `keep` are left, never the newest two."""
        dropped = False
        while len(self._kept) > max(keep, 2):
            _unlink(self.directory / f"{self._kept[0]:08d}{SEGMENT_SUFFIX}")
            del self._kept[0]
            dropped = True
        return dropped

    def _watch(self) -> None:
        """Tell the writer when its present segment has lost its name."""
        kept = self._kept
        if not kept or self.on_gone is None or kept[-1] == self.gone_number:
            return
        number = kept[-1]
        try:
            os.stat(self.directory / f"{number:08d}{SEGMENT_SUFFIX}")
        except FileNotFoundError:
            self.gone_number = number
            self.on_gone()
        except OSError:
            return  # permission lost: the segment is still there

    def _drop_retired(self) -> None:
        while self._retired:
            self._retired.pop().unmap()


def make_private_directory(path: Path) -> None:
    """Make `path` and its missing parents, each 0700."""
    if path.is_dir():
        return
    make_private_directory(path.parent)
    path.mkdir(mode=0o700, exist_ok=True)


def _unlink(path: Path) -> None:
    try:
        os.unlink(path)
    except OSError:
        return  # removed by hand, or permission lost: nothing more can be done here
