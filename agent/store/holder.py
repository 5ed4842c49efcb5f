"""Who writes a stream: an agent's name, its process, and whether that process is known to be gone.

A lease must outlast steps of any wall clock, so none is asked: a lease lives while its count of
beats moves, and whoever watches measures the silence on a monotonic clock of its own. An agent on
the same machine need not wait: the kernel knows whether the other process is there.
"""

import os
import secrets
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

RENEW_SECONDS: Final = 2.0
SILENT_SECONDS: Final = 6.0  # with a look each second, a lease passes on within 10 s
LOOK_SECONDS: Final = 2.0  # what one look can add to a silence
PROC: Final = Path("/proc")


@dataclass(frozen=True, slots=True)
class Holder:
    """One agent; the name is unique, the process is empty where the kernel tells nothing."""

    name: str  # host:pid:random digits
    process: str  # boot/pid namespace/pid/start


def this_agent() -> Holder:
    """Return a new name for an agent in this process."""
    pid = os.getpid()
    machine, started = _machine(), _start_of(pid)
    process = f"{machine}/{pid}/{started}" if machine and started else ""
    return Holder(f"{socket.gethostname()[:64]}:{pid}:{secrets.token_hex(4)}", process)


def is_here(process: str) -> bool:
    """Say whether a holder's process could be seen from here: same boot, same pid namespace."""
    machine = _machine()
    return bool(machine) and process.startswith(f"{machine}/")


def is_gone(process: str) -> bool:
    """Say whether a holder's process is known to be gone; False where nobody can tell."""
    if not is_here(process):
        return False
    _, _, pid, started = process.split("/")
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass  # somebody else's, so it is there, or its number was given away
    now = _start_of(int(pid))
    return now is not None and now != started


def _machine() -> str | None:
    try:
        boot = (PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{(PROC / 'self/ns/pid').stat().st_ino}"
    except OSError:
        return None


def _start_of(pid: int) -> str | None:
    try:
        # The name in brackets may hold anything; state is the first field after it.
        fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return "dead" if fields[0] in "ZX" else fields[19]


class Beat(NamedTuple):
    """A lease as it is stored."""

    holder: str
    process: str
    beat: int


@dataclass(slots=True)
class _Seen:
    """What was seen of one lease."""

    lease: Beat
    looked_at: float
    has_moved: bool
    silent_seconds: float = 0.0


class LeaseWatch:
    """How long each foreign lease has been silent, as seen from here.

    Where nobody could look, nothing is known: after a database was away for a minute, its holder
    has not been silent for a minute. So a look adds little to a silence, however late it comes.
    """

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        self._seen: dict[object, _Seen] = {}

    def is_over(self, stream: object, lease: Beat) -> bool:
        """Look at a foreign lease; say whether its holder is gone, or silent for too long."""
        now = self._seconds()
        before = self._seen.get(stream)
        if before is None or before.lease != lease:
            moved = before is not None and before.lease.holder == lease.holder
            self._seen[stream] = _Seen(lease, now, moved)
            return is_gone(lease.process)
        before.silent_seconds += min(now - before.looked_at, LOOK_SECONDS)
        before.looked_at = now
        return is_gone(lease.process) or before.silent_seconds >= SILENT_SECONDS

    def is_proven(self, stream: object) -> bool:
        """Say whether the holder is known to live: it moved, or its process is here."""
        seen = self._seen.get(stream)
        return seen is not None and (seen.has_moved or is_here(seen.lease.process))

    def forget(self, stream: object) -> None:
        """Drop what was seen of a stream's lease."""
        self._seen.pop(stream, None)
