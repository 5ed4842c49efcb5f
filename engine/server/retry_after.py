"""Say in how many seconds a refused client should come back, from how fast sequences end here."""

import time
from collections import deque
from collections.abc import Callable
from math import ceil
from typing import Final

from kvpulse.events import RejectReason

ENDS_KEPT: Final = 32
MIN_SECONDS: Final = 1
MAX_SECONDS: Final = 60  # clients take a longer one as "never": openai above 120, formerly above 60

# Refused because of what the running sequences hold, rather than of who waits before it.
_OF_THE_POOL: Final = frozenset({RejectReason.ABOVE_WATERMARK, RejectReason.OUT_OF_MEMORY})


class RetryAfter:
    """Estimates when half of those in the way will have ended, at the rate of the last ends.

    Half, since a client that came back only once all had ended would leave the engine idle. While
    nothing ends, the rate falls with the time that passes.
    """

    def __init__(
        self, *, closing_seconds: float, now_seconds: Callable[[], float] = time.monotonic
    ) -> None:
        """Prepare it.

        Args:
            closing_seconds: What a server that shuts down still takes to be gone.
        """
        self._closing_seconds = closing_seconds
        self._now_seconds = now_seconds
        self._ends: deque[float] = deque(maxlen=ENDS_KEPT)

    def note_end(self) -> None:
        """Note that a sequence ended just now."""
        self._ends.append(self._now_seconds())

    def seconds(self, reason: RejectReason, *, num_running: int, num_waiting: int) -> int:
        """Return the seconds, from 1 to 60; only a retryable reason's mean anything."""
        if reason is RejectReason.SHUTTING_DOWN:
            return _bounded(self._closing_seconds + 1)
        in_the_way = num_running if reason in _OF_THE_POOL else num_waiting
        return _bounded(in_the_way / 2 * self._seconds_per_end())

    def _seconds_per_end(self) -> float:
        if len(self._ends) < 2:
            return 0.0
        return (self._now_seconds() - self._ends[0]) / (len(self._ends) - 1)


def _bounded(seconds: float) -> int:
    return min(max(ceil(seconds), MIN_SECONDS), MAX_SECONDS)
