"""Find the streams under a journal folder: `<journal>/<engine>/<run id>/`, one per writer.

The folder may lie in shared memory that others can write to, so nothing is followed on trust:
links, files, names that no engine writes and folders of another user are passed over, each said
once.
"""

import logging
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agent.store.stream_id import StreamId
from kvpulse.events import MAX_STRING_BYTES

LOGGER: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FoundStream:
    """A stream's folder and whose it is."""

    stream: StreamId
    directory: Path


class JournalFolder:
    """One journal folder, looked at again and again."""

    def __init__(self, path: Path, *, uid: int | None = None) -> None:
        self.path = path
        self._uid = os.geteuid() if uid is None else uid
        self._told: set[str] = set()
        self.problem: str | None = None  # why the folder itself cannot be read now

    def streams(self) -> list[FoundStream]:
        """Return the streams that are there now, in the order of their names."""
        self.problem = None
        owners = self._trusted_owners()
        if owners is None:
            return []
        return [
            FoundStream(StreamId(engine.name, run.name), Path(run.path))
            for engine in self._folders(self.path, owners)
            for run in self._folders(Path(engine.path), owners)
        ]

    def _trusted_owners(self) -> frozenset[int] | None:
        try:
            found = os.stat(self.path)
        except FileNotFoundError:
            self._tell(self.path, "does not exist yet; waiting for an engine to create it")
            return None
        except OSError as error:
            self._refuse(f"cannot be read: {error.strerror}")
            return None
        # Root may read for somebody else; everybody else trusts only their own engines.
        return frozenset({self._uid, found.st_uid} if self._uid == 0 else {self._uid})

    def _folders(self, parent: Path, owners: frozenset[int]) -> Iterator[os.DirEntry[str]]:
        try:
            with os.scandir(parent) as entries:
                found = sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            problem = f"cannot be listed: {error.strerror}"
            if parent == self.path:
                self._refuse(problem)
            else:
                self._tell(parent, problem)
            return
        for entry in found:
            if not entry.name.startswith(".") and self._is_trusted(entry, owners):
                yield entry

    def _is_trusted(self, entry: os.DirEntry[str], owners: frozenset[int]) -> bool:
        try:
            status = entry.stat(follow_symlinks=False)
        except OSError:
            return False  # went away between the listing and the look
        problem = _problem(entry.name, status, owners)
        if problem is not None:
            self._tell(Path(entry.path), problem)
        return problem is None

    def _refuse(self, problem: str) -> None:
        self.problem = f"the journal folder {self.path} {problem}"
        self._tell(self.path, problem)

    def _tell(self, path: Path, problem: str) -> None:
        line = f"passing over {ascii(str(path))[1:-1]}: {problem}"
        if line not in self._told:
            self._told.add(line)
            LOGGER.warning("%s", line)


def _problem(name: str, status: os.stat_result, owners: frozenset[int]) -> str | None:
    if stat.S_ISLNK(status.st_mode):
        return "it is a link, and links are not followed"
    if not stat.S_ISDIR(status.st_mode):
        return "it is not a folder"
    if status.st_uid not in owners:
        return f"it belongs to user {status.st_uid}"
    if not name.isascii() or not name.isprintable() or len(name) > MAX_STRING_BYTES:
        return "no engine writes such a name"
    return None
