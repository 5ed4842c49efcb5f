"""One side of a comparison as a series: sums and histograms of equal intervals, gaps left out.

It is what a saved baseline keeps, so that pruning the rollups it came from does not lose it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from agent.rollups.histogram import NUM_BUCKETS

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

NS: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class BucketLines:
    """Histograms of a latency, one for each interval, as lines of one bucket each.

    Attributes:
        interval: [num_lines], the place of the interval in the window.
        bucket: [num_lines], of `agent.rollups.histogram`.
        count: [num_lines], samples in that bucket.
    """

    interval: Ints
    bucket: Ints
    count: Ints

    @classmethod
    def none(cls) -> Self:
        """Return histograms without a sample."""
        empty = np.zeros(0, np.int64)
        return cls(empty, empty, empty)

    def within(self, chosen: Bools) -> "BucketLines":
        """Keep the lines of the chosen intervals; `chosen` has one value for each interval."""
        kept = chosen[self.interval]
        return BucketLines(self.interval[kept], self.bucket[kept], self.count[kept])


@dataclass(frozen=True, slots=True)
class WindowSeries:
    """Equal intervals `[start_ns + i * tier, …)` of one engine, in wall time.

    Attributes:
        is_counted: [num_intervals]; False where nothing was recorded, or something was lost.
        counters: Sums of each interval, [num_intervals]; NaN where not measured.
        latencies: Histograms of each interval; a latency that nobody measures is absent.
    """

    tier_seconds: int
    start_ns: int
    is_counted: Bools
    counters: Mapping[str, Floats]
    latencies: Mapping[str, BucketLines]

    @property
    def num_intervals(self) -> int:
        """How many intervals the window has, counted or not."""
        return len(self.is_counted)

    @property
    def end_ns(self) -> int:
        """Where the window ends."""
        return self.start_ns + self.num_intervals * self.tier_seconds * NS

    def total(self, name: str) -> float | None:
        """Return a counter's sum over the counted intervals; None where nobody measured it."""
        values = self.counters[name][self.is_counted]
        measured = values[~np.isnan(values)]
        return float(measured.sum()) if len(measured) else None

    def coarsened(self, tier_seconds: int) -> "WindowSeries":
        """Return the series at a coarser tier, a multiple of this one: sums and merges are exact.

        A coarse interval counts if more than half of its fine ones do.
        """
        if tier_seconds == self.tier_seconds:
            return self
        step_ns = tier_seconds * NS
        first = self.start_ns // step_ns
        times = self.start_ns + np.arange(self.num_intervals) * (self.tier_seconds * NS)
        place = times // step_ns - first
        num_coarse = int(place[-1]) + 1 if len(place) else 0
        whole = tier_seconds // self.tier_seconds
        counted = np.bincount(place[self.is_counted], minlength=num_coarse)
        counters = {
            name: _summed(np.where(self.is_counted, values, np.nan), place, num_coarse)
            for name, values in self.counters.items()
        }
        latencies = {
            name: _regrouped(lines.within(self.is_counted), place)
            for name, lines in self.latencies.items()
        }
        return WindowSeries(tier_seconds, first * step_ns, 2 * counted > whole, counters, latencies)


def _summed(values: Floats, place: Ints, num_coarse: int) -> Floats:
    measured = ~np.isnan(values)
    sums = np.bincount(place[measured], values[measured], minlength=num_coarse)
    seen = np.bincount(place[measured], minlength=num_coarse)
    return np.where(seen > 0, sums, np.nan)


def _regrouped(lines: BucketLines, place: Ints) -> BucketLines:
    keys, inverse = np.unique(
        place[lines.interval] * NUM_BUCKETS + lines.bucket, return_inverse=True
    )
    counts = np.zeros(len(keys), np.int64)
    np.add.at(counts, inverse, lines.count)
    return BucketLines(keys // NUM_BUCKETS, keys % NUM_BUCKETS, counts)
