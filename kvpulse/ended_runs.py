"""Bound what an engine's earlier runs keep in the journal, once a new run begins.

The journal often lies in memory, so a folder that grows with every run would in the end take the
engine's own. The oldest segments of the oldest ended runs go first. The newest segment and the loss
page of a run stay: from those two a reader still tells every loss per kind. Whole runs go late.
Called by the helper thread alone.
"""

import os
import stat
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from kvpulse.disk_usage import bytes_on_disk
from kvpulse.ended_run import EndedRun, look_at
from kvpulse.segment import ProcessIdentity

KEPT_RUNS: Final = 32  # never removed whole
KEPT_NS: Final = 24 * 3600 * 10**9  # nor any other so soon after its end
PRESSED_NS: Final = 3600 * 10**9  # but where last segments alone exceed the bound


class EndedRuns:
    """The other runs of one engine: which are over, and how much all of them take."""

    def __init__(
        self,
        engine: Path,
        own: str,
        process: ProcessIdentity,
        *,
        wall_clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._engine = engine
        self._own = own
        self._process = process
        self._wall_clock = wall_clock
        self._runs: list[EndedRun] = []  # oldest first
        self.num_bytes = 0  # of all runs but our own, over or not

    def look(self) -> None:
        """See what there is, and free what killed runs had reserved."""
        now_ns = self._wall_clock()
        for directory in _folders(self._engine):
            if directory.name == self._own:
                continue
            try:
                run = look_at(directory, self._process, now_ns=now_ns)
            except (OSError, ValueError, struct.error):
                run = None  # being removed, or not what a Recorder wrote
            if run is not None:
                self._runs.append(run)
            self.num_bytes += bytes_on_disk(directory)
        self._runs.sort(key=lambda run: (run.newest_ns, run.directory.name))

    def bound(self, room_bytes: int) -> None:
        """Unlink old segments until the other runs take at most `room_bytes`, or none is left."""
        while self.num_bytes > room_bytes and self.drop_oldest():
            continue

    def drop_oldest(self) -> bool:
        """Unlink the oldest segment of the oldest run that has one to spare."""
        for run in self._runs:
            if run.older:
                self.num_bytes -= run.drop_oldest()
                return True
        return False

    def remove_old(self, room_bytes: int) -> None:
        """Remove runs whole that ended long ago, but never the newest ones."""
        now_ns = self._wall_clock()
        for run in self._runs[:-KEPT_RUNS]:
            limit_ns = PRESSED_NS if self.num_bytes > room_bytes else KEPT_NS
            if run.older or now_ns - run.ended_ns < limit_ns:
                continue
            self.num_bytes -= run.remove()


def _folders(engine: Path) -> Iterator[Path]:
    """Give the run folders that are this user's alone to change."""
    try:
        with os.scandir(engine) as entries:
            found = [(entry.path, entry.stat(follow_symlinks=False)) for entry in entries]
    except OSError:
        return
    for path, status in sorted(found):
        private = stat.S_ISDIR(status.st_mode) and not status.st_mode & 0o022
        if private and status.st_uid == os.geteuid():
            yield Path(path)
