"""Engine time: monotonic nanoseconds, from the machine or from a simulation."""

import time
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """Where the engine reads its time."""

    def now_ns(self) -> int:
        """Return engine time in nanoseconds; it never goes back."""


class SystemClock:
    """The machine's monotonic clock."""

    now_ns = staticmethod(time.monotonic_ns)


class VirtualClock:
    """Time that passes only when a simulation says so.

    With a `speed`, `advance` also holds the simulation back to at most that many virtual seconds
    per wall second, so that people can watch it; `wall_ns` and `sleep` are what it waits with.
    """

    def __init__(
        self,
        start_ns: int = 0,
        *,
        speed: float | None = None,
        wall_ns: Callable[[], int] = time.monotonic_ns,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._now_ns = start_ns
        self._speed = speed
        self._wall_ns = wall_ns
        self._sleep = sleep
        self._started_ns = start_ns
        self._wall_started_ns = wall_ns()

    def now_ns(self) -> int:
        """Return the virtual time."""
        return self._now_ns

    def advance(self, ns: int) -> None:
        """Let `ns` nanoseconds pass; negative amounts are a bug."""
        assert ns >= 0, "time never goes back"
        self._now_ns += ns
        if self._speed is not None:
            self._hold_back(self._speed)

    def advance_to(self, ns: int) -> None:
        """Let time pass until `ns`; nothing happens when that is over already."""
        if ns > self._now_ns:
            self.advance(ns - self._now_ns)

    def _hold_back(self, speed: float) -> None:
        due_ns = self._wall_started_ns + (self._now_ns - self._started_ns) / speed
        early_ns = due_ns - self._wall_ns()
        if early_ns > 0:
            self._sleep(early_ns / 1e9)
