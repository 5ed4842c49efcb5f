"""Where the mean time to first token changed: a difference split over parts that add up.

It tells in which waits the time went, and never why: more requests, a smaller pool and a slower
engine may all show as a longer wait for blocks.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from agent.baselines.first_tokens import NUM_SPLIT, PART_COUNTERS
from agent.baselines.window_series import WindowSeries

FEWEST_SPLIT_RATIO: Final = 0.95  # below this the mean could be another one
LABELS: Final = (
    "wait for blocks",
    "wait behind one for blocks",
    "wait for the scheduler",
    "wait for a quota",
    "wait for a transfer",
    "admission to first token",
)
NS: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class SplitMean:
    """One side's mean TTFT.

    Attributes:
        num_requests: Requests that were split.
        num_first_tokens: Requests that had a first token in the counted intervals.
        parts_ns: Sums over the split requests, in the order of `PART_COUNTERS`.
    """

    num_requests: int
    num_first_tokens: int
    parts_ns: tuple[int, ...]

    @property
    def total_ns(self) -> int:
        """Their times to first token, summed: exactly the sum of the parts."""
        return sum(self.parts_ns)

    @property
    def is_enough(self) -> bool:
        """Whether it stands for the whole side."""
        return 0 < self.num_first_tokens * FEWEST_SPLIT_RATIO <= self.num_requests

    def mean_seconds(self, ns: int) -> Fraction:
        """Return a sum per request."""
        return Fraction(ns, NS * self.num_requests)


@dataclass(frozen=True, slots=True)
class WherePart:
    """One part of the mean TTFT, in seconds per request."""

    name: str
    label: str
    first: float
    second: float
    change: float


@dataclass(frozen=True, slots=True)
class Where:
    """The difference of mean TTFT, split.

    Attributes:
        total: TTFT itself; the parts are worked out as fractions of whole nanoseconds, so that they
            add up to it but for the rounding of each printed number.
        parts: Empty where there is no answer.
        first, second: What each side was split from; None: that side cannot be split.
        why_not: Why there is no answer; empty where there is one.
    """

    total: WherePart | None
    parts: tuple[WherePart, ...]
    first: SplitMean | None
    second: SplitMean | None
    why_not: str = ""


def where(first: WindowSeries, second: WindowSeries) -> Where:
    """Split the difference of mean TTFT between two sides."""
    sides = (_split_mean(first), _split_mean(second))
    a, b = sides
    if a is None or b is None or not (a.is_enough and b.is_enough):
        place = 0 if a is None or not a.is_enough else 1
        return Where(None, (), a, b, _why_not(("first", "second")[place], sides[place]))
    parts = tuple(
        _part(name.removeprefix("ttft_").removesuffix("_ns"), label, a, b, sums)
        for name, label, sums in zip(
            PART_COUNTERS, LABELS, zip(a.parts_ns, b.parts_ns, strict=True), strict=True
        )
    )
    return Where(_part("ttft", "mean TTFT", a, b, (a.total_ns, b.total_ns)), parts, a, b)


def _split_mean(series: WindowSeries) -> SplitMean | None:
    num = series.total(NUM_SPLIT)
    lines = series.latencies.get("ttft")
    if num is None or lines is None:
        return None
    sampled = int(lines.within(series.is_counted).count.sum())
    parts = tuple(int(series.total(name) or 0) for name in PART_COUNTERS)
    return SplitMean(int(num), sampled, parts)


def _part(
    name: str, label: str, first: SplitMean, second: SplitMean, sums_ns: tuple[int, int]
) -> WherePart:
    a, b = first.mean_seconds(sums_ns[0]), second.mean_seconds(sums_ns[1])
    return WherePart(name, label, float(a), float(b), float(b - a))


def _why_not(which: str, side: SplitMean | None) -> str:
    if side is None:
        return (
            f"the {which} side keeps no sums by request: an older version saved it, or the rows of"
            " its requests are gone; save a baseline anew"
        )
    if not side.num_first_tokens:
        return f"the {which} side has no first token"
    return (
        f"of the {which} side's {side.num_first_tokens} first tokens only {side.num_requests} can"
        " be split: the rows of the others are gone, or events of them were lost"
    )
