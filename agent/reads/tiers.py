"""Which rollup tiers answer a question about a window. Pure; times in wall ns."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from agent.rollups.scalars import TIERS

NS: Final = 1_000_000_000


class Stretch(NamedTuple):
    """Intervals of one tier that begin in `[start_ns, end_ns)`."""

    tier_seconds: int
    start_ns: int
    end_ns: int


class Window(NamedTuple):
    """A window as asked for, `[start_ns, end_ns)`, and how many points it may have."""

    start_ns: int
    end_ns: int
    max_points: int = 2000

    def within(self, start_ns: int, end_ns: int) -> "Window":
        """Return the part inside `[start_ns, end_ns)`; empty, never negative."""
        start = max(self.start_ns, start_ns)
        return Window(start, max(start, min(self.end_ns, end_ns)), self.max_points)

    def tier(self, tiers: Sequence[int] = TIERS) -> Stretch:
        """Return the finest tier with at most `max_points` intervals, else the coarsest.

        The interval that holds `start_ns` is included, so that the left edge is never empty.
        """
        for tier in tiers:
            step = tier * NS
            first = self.start_ns // step * step
            if tier == tiers[-1] or self.end_ns - first <= self.max_points * step:
                return Stretch(tier, first, self.end_ns)
        raise AssertionError("no tiers")


def cover(start_ns: int, end_ns: int) -> list[Stretch]:
    """Cut a window into whole intervals, each of the coarsest tier that fits: few and exact.

    The ends are widened to whole intervals of the finest tier. Sums and histograms over the
    stretches are those of the window; a day takes about 170 intervals instead of 86,400.
    """
    finest = TIERS[0] * NS
    low, high = start_ns // finest * finest, -(-end_ns // finest) * finest
    left: list[Stretch] = []
    right: list[Stretch] = []
    for finer, coarser in pairwise(TIERS):
        step = coarser * NS
        inner_low, inner_high = -(-low // step) * step, high // step * step
        if inner_low >= inner_high:
            left.append(Stretch(finer, low, high))
            low = high
            break
        left.append(Stretch(finer, low, inner_low))
        right.append(Stretch(finer, inner_high, high))
        low, high = inner_low, inner_high
    left.append(Stretch(TIERS[-1], low, high))
    return [stretch for stretch in left + right[::-1] if stretch.start_ns < stretch.end_ns]
