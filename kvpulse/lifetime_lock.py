"""A lock that lives exactly as long as the writing process.

It is a POSIX record lock: a `flock` would stay with a forked child after its parent was killed.
Such a lock belongs to the process, and *any* close of the file in that process drops it, so the
writer opens the file once, and nothing else in the writer's process may open it.
"""

import fcntl
import os
from pathlib import Path
from struct import Struct
from typing import Final

LOCK_FILE: Final = "lock"

# struct flock on 64-bit Linux: type, whence, start, length, pid.
_FLOCK: Final = Struct("@hhqqi4x")


class LifetimeLock:
    """Held by the writer from creation to `release`."""

    __slots__ = ("_descriptor",)

    def __init__(self, directory: Path) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        path = directory / LOCK_FILE
        self._descriptor = os.open(path, flags, 0o600)
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._descriptor)
            os.unlink(path)
            raise

    def release(self) -> None:
        """Let the lock go; a forked child's call changes nothing for its parent."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def is_locked(directory: Path) -> bool:
    """Ask whether a living process holds the stream's lock.

    Never call this in the process that writes the stream: it would be told no, and would drop the
    lock on the way out.
    """
    return _ask(directory) is True


def is_released(directory: Path) -> bool:
    """Ask whether the stream's lock is there and certainly held by nobody.

    Where nobody can tell, the answer is no. The same warning holds as for `is_locked`.
    """
    return _ask(directory) is False


def _ask(directory: Path) -> bool | None:
    try:
        path = os.path.join(directory, LOCK_FILE)  # cheaper than Path, and asked a lot
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        question = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        answer = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, question))
        return bool(answer[0] != fcntl.F_UNLCK)
    except OSError:
        return None
    finally:
        os.close(descriptor)
