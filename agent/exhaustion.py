"""When the pool will have no block left to give, if it goes on as it did lately: a range.

The slope of free + cached blocks is taken over several stretches of engine time: a burst and the
trend behind it give different answers, and the truth of either is not known. Nothing is smoothed.
"""

from collections import deque
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

NS_PER_SECOND: Final = 1_000_000_000
STRETCHES_SECONDS: Final = (10, 30, 60)
MOST_SAMPLES: Final = 2_000


@dataclass(frozen=True, slots=True)
class Exhaustion:
    """Seconds until nothing is left; None is never, at that slope."""

    least_seconds: float | None
    most_seconds: float | None


class AvailableBlocks:
    """Remembers free + cached blocks of the last minute."""

    def __init__(self) -> None:
        self._samples: deque[tuple[int, int]] = deque(maxlen=MOST_SAMPLES)
        self._total: int | None = None
        self._num_gaps = 0

    def add(self, t_ns: int, available: int | None, *, total: int | None, num_gaps: int) -> None:
        """Note how many blocks could be had at an engine time; nothing is compared across a gap."""
        if available is None or (total, num_gaps) != (self._total, self._num_gaps):
            self._samples.clear()
        self._total, self._num_gaps = total, num_gaps
        if available is None or (self._samples and t_ns <= self._samples[-1][0]):
            return
        self._samples.append((t_ns, available))
        oldest = t_ns - max(STRETCHES_SECONDS) * NS_PER_SECOND
        while len(self._samples) > 2 and self._samples[1][0] <= oldest:
            self._samples.popleft()

    def estimate(self) -> Exhaustion | None:
        """Return the range over all stretches that are covered; None before one of them is."""
        if not self._samples:
            return None
        now_ns, available = self._samples[-1]
        covered = [
            s for s in STRETCHES_SECONDS if now_ns - self._samples[0][0] >= s * NS_PER_SECOND
        ]
        if not covered:
            return None
        seconds = [self._seconds_left(now_ns, available, stretch) for stretch in covered]
        falling = [left for left in seconds if left is not None]
        most = max(falling, default=None) if len(falling) == len(seconds) else None
        return Exhaustion(min(falling, default=None), most)

    def _seconds_left(self, now_ns: int, available: int, stretch: int) -> float | None:
        if available == 0:
            return 0.0
        then_ns, before = self._at(now_ns - stretch * NS_PER_SECOND)
        taken = before - available
        if taken <= 0:
            return None
        return available * (now_ns - then_ns) / taken / NS_PER_SECOND

    def _at(self, t_ns: int) -> tuple[int, int]:
        """Return the newest sample that is not younger than `t_ns` says."""
        for sample, later in pairwise(self._samples):
            if later[0] > t_ns:
                return sample
        return self._samples[-1]
