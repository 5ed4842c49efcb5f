"""What lies in a journal, without opening any of it."""

import os
from pathlib import Path

from kvpulse.errors import JournalError
from kvpulse.lifetime_lock import LOCK_FILE
from kvpulse.segment_view import segment_numbers


def list_streams(journal: Path) -> list[Path]:
    """Return the stream directories of a journal, by engine and run."""
    streams: list[Path] = []
    for engine in _directories(Path(journal)):
        streams.extend(run for run in _directories(engine) if _is_stream(run))
    return streams


def _directories(path: Path) -> list[Path]:
    try:
        with os.scandir(path) as entries:
            found = [Path(e.path) for e in entries if e.is_dir(follow_symlinks=False)]
    except OSError:
        return []
    return sorted(found)


def _is_stream(directory: Path) -> bool:
    try:
        return os.path.lexists(directory / LOCK_FILE) or bool(segment_numbers(directory))
    except JournalError:
        return True  # whoever opens it is told why it cannot be read
