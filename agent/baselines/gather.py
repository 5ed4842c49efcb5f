"""Put rollup rows of one tier on a window's grid: from the store, or straight from a ledger."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from agent.baselines.first_tokens import FirstTokens, not_split, split_counters
from agent.baselines.metrics import COUNTERS, LATENCIES
from agent.baselines.window_series import NS, Bools, BucketLines, Floats, Ints, WindowSeries
from agent.rollups.histogram import decode_buckets


class Grid(NamedTuple):
    """Equal intervals of a window, in wall time; `start_ns` is a whole multiple of the tier."""

    tier_seconds: int
    start_ns: int
    num_intervals: int

    @property
    def end_ns(self) -> int:
        """Where the window ends."""
        return self.start_ns + self.num_intervals * self.tier_seconds * NS

    def places(self, at_ns: Ints) -> Ints:
        """Return the interval of each time; outside the window it is negative or too large."""
        return (at_ns - self.start_ns) // (self.tier_seconds * NS)


class HistogramRow(NamedTuple):
    """One latency over one interval."""

    at_ns: int
    metric: str
    histogram: bytes


class RunRows(NamedTuple):
    """What one run has stored of a window.

    Attributes:
        at_ns: [num_rows], wall time; ascending.
        counters: [num_rows] of each of `COUNTERS`; NaN where not measured.
        lost: Stretches [start, end) of wall time in which events were lost, [num_gaps, 2].
        first_tokens: Requests by their first token; None where no request is at hand.
    """

    at_ns: Ints
    counters: Mapping[str, Floats]
    histograms: Iterable[HistogramRow]
    lost: Ints
    first_tokens: FirstTokens | None = None


class Gathered(NamedTuple):
    """A window's series, and why intervals of it do not count."""

    series: WindowSeries
    num_not_recorded: int
    num_in_gaps: int


def gather(grid: Grid, runs: Iterable[RunRows]) -> Gathered:
    """Put the rows of the runs of one engine together.

    An interval counts if exactly one run has a row for it and nothing was lost in it: where an
    engine restarted, two runs share one.
    """
    num = grid.num_intervals
    num_runs = np.zeros(num, np.int64)
    in_gap = np.zeros(num, np.bool_)
    counters = {name: np.full(num, np.nan) for name in COUNTERS}
    lines: dict[str, list[BucketLines]] = {name: [] for name in LATENCIES}
    first_tokens: list[FirstTokens] = []
    for run in runs:
        place = grid.places(run.at_ns)
        inside = (place >= 0) & (place < num)
        num_runs[place[inside]] += 1
        for name in COUNTERS:
            counters[name][place[inside]] = run.counters[name][inside]
        _mark_lost(in_gap, grid, run.lost)
        _add_histograms(lines, grid, run.histograms)
        if run.first_tokens is not None:
            first_tokens.append(run.first_tokens)
    is_counted = (num_runs == 1) & ~in_gap
    latencies = {name: _joined(parts) for name, parts in lines.items() if parts}
    counters |= _split(grid, first_tokens, latencies.get("ttft"))
    series = WindowSeries(grid.tier_seconds, grid.start_ns, is_counted, counters, latencies)
    return Gathered(series, int(((num_runs != 1) & ~in_gap).sum()), int(in_gap.sum()))


def _split(
    grid: Grid, first_tokens: list[FirstTokens], sampled: BucketLines | None
) -> Mapping[str, Floats]:
    num = grid.num_intervals
    if not first_tokens:
        return not_split(num)
    places = grid.places(np.concatenate([part.at_ns for part in first_tokens]))
    parts_ns = np.concatenate([part.parts_ns for part in first_tokens])
    inside = (places >= 0) & (places < num)
    return split_counters(places[inside], parts_ns[inside], sampled or BucketLines.none(), num)


def _mark_lost(in_gap: Bools, grid: Grid, lost: Ints) -> None:
    for start_ns, end_ns in lost.tolist():
        if end_ns < grid.start_ns or start_ns >= grid.end_ns:
            continue
        first, last = grid.places(np.array([start_ns, end_ns], np.int64)).tolist()
        in_gap[max(first, 0) : last + 1] = True


def _add_histograms(
    lines: dict[str, list[BucketLines]], grid: Grid, rows: Iterable[HistogramRow]
) -> None:
    places: dict[str, list[int]] = {name: [] for name in lines}
    lengths: dict[str, list[int]] = {name: [] for name in lines}
    buckets: dict[str, list[int]] = {name: [] for name in lines}
    counts: dict[str, list[int]] = {name: [] for name in lines}
    for at_ns, metric, blob in rows:
        place = (at_ns - grid.start_ns) // (grid.tier_seconds * NS)
        if metric not in lines or not 0 <= place < grid.num_intervals:
            continue
        its_buckets, its_counts = decode_buckets(blob)
        places[metric].append(place)
        lengths[metric].append(len(its_buckets))
        buckets[metric] += its_buckets
        counts[metric] += its_counts
    for name, parts in lines.items():
        if places[name]:
            interval = np.repeat(np.array(places[name], np.int64), lengths[name])
            parts.append(
                BucketLines(
                    interval, np.array(buckets[name], np.int64), np.array(counts[name], np.int64)
                )
            )


def _joined(parts: list[BucketLines]) -> BucketLines:
    return BucketLines(
        np.concatenate([part.interval for part in parts]),
        np.concatenate([part.bucket for part in parts]),
        np.concatenate([part.count for part in parts]),
    )
