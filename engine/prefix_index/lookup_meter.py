"""How often an index is asked, and what that costs: every 64th call is timed, and scaled up."""

import time
from collections.abc import Callable
from typing import Final

EVERY: Final = 64  # calls per timed one: a power of two


class CallMeter:
    """Counts the calls of one kind; times every 64th.

    Attributes:
        num_calls: All calls.
        num_timed: Those that were timed.
        timed_ns: What they took, CPU time of the calling thread.
    """

    __slots__ = ("_now_ns", "num_calls", "num_timed", "timed_ns")

    def __init__(self, now_ns: Callable[[], int] = time.thread_time_ns) -> None:
        self.num_calls = 0
        self.num_timed = 0
        self.timed_ns = 0
        self._now_ns = now_ns

    def start(self) -> int:
        """Count a call; return when it began if it is one to time, else 0."""
        self.num_calls += 1
        return 0 if self.num_calls & (EVERY - 1) else self._now_ns()

    def stop(self, started_ns: int) -> None:
        """Take in a timed call."""
        self.num_timed += 1
        self.timed_ns += self._now_ns() - started_ns

    def estimated_ns(self) -> int | None:
        """Return what all calls took, scaled from the timed ones; None if none was timed."""
        if not self.num_calls:
            return 0
        return self.timed_ns * self.num_calls // self.num_timed if self.num_timed else None


class IndexMeters:
    """The meters of one index: naming contents, finding them, taking them in."""

    def __init__(self, now_ns: Callable[[], int] = time.thread_time_ns) -> None:
        self.identify = CallMeter(now_ns)
        self.lookup = CallMeter(now_ns)
        self.offer = CallMeter(now_ns)
