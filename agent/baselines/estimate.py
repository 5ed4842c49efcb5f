"""A metric of one side: its value, how long its series remembers, and how uncertain it is.

Both kinds of metric are worked out from sums over intervals: a ratio from two of them, a quantile
from the counts per bucket. What an interval contributes to the difference from the final value (its
influence) is the series whose autocorrelation matters.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from agent.baselines.autocorrelation import autocorrelation_time
from agent.baselines.block_bootstrap import Blocks, draws_per_side, resampled_sums
from agent.baselines.metrics import Metric, QuantileMetric, RatioMetric
from agent.baselines.window_series import Bools, Floats, WindowSeries
from agent.rollups.histogram import bucket_edges

FEWEST_BEYOND: Final = 10  # samples on the rarer side of a quantile
FEWEST_EVENTS: Final = 30  # of a ratio's denominator
SECONDS_PER_NS: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Measured:
    """What a side says of a metric, before anything is resampled.

    Attributes:
        columns: [num_intervals, num_columns] of sums; zeros where not counted.
        edges: [num_columns + 1] in seconds, of a quantile's buckets; None for a ratio.
        is_counted: [num_intervals], those with a measured value.
        value: None where there is too little to have one.
        num_samples: Latency samples, or the denominator.
        tau: Autocorrelation time in intervals.
    """

    metric: Metric
    columns: Floats
    edges: Floats | None
    is_counted: Bools
    value: float | None
    num_samples: int
    num_events: int  # a ratio's numerator; a quantile's samples
    tau: float

    @property
    def num_counted(self) -> int:
        """How many intervals have a measured value."""
        return int(self.is_counted.sum())

    @property
    def has_enough_samples(self) -> bool:
        """Whether the value itself can be relied on."""
        if isinstance(self.metric, QuantileMetric):
            rarer = min(self.metric.ratio, 1 - self.metric.ratio)
            return self.num_samples * rarer >= FEWEST_BEYOND
        return self.num_samples >= FEWEST_EVENTS

    def standard_error(self, blocks: Blocks, *, seed: int) -> float:
        """Return the spread of the value over windows drawn from blocks of this one."""
        sums = resampled_sums(self.columns, blocks, seed=seed)
        values = _quantiles(sums, self.metric, self.edges)
        values = values[np.isfinite(values)]
        if len(values) < 2:
            return float("inf")
        num_intervals = len(self.is_counted)
        drawn = draws_per_side(num_intervals, blocks.length) * blocks.length / num_intervals
        # Blocks drawn from a mean that they share spread a little too little.
        shrunk = blocks.num_blocks / max(blocks.num_blocks - 1, 1)
        return float(np.std(values, ddof=1)) * float(np.sqrt(drawn * shrunk))


def measure(metric: Metric, series: WindowSeries) -> Measured | None:
    """Work a metric out of a side; None where nobody measured it."""
    if isinstance(metric, QuantileMetric):
        return _measure_quantile(metric, series)
    return _measure_ratio(metric, series)


def value_of(measured: Measured | None) -> float | None:
    """Return a metric's value where there is one."""
    return None if measured is None else measured.value


def _measure_ratio(metric: RatioMetric, series: WindowSeries) -> Measured | None:
    above = series.counters[metric.numerator] * metric.scale
    below = (
        np.full(series.num_intervals, float(series.tier_seconds))
        if metric.denominator is None
        else series.counters[metric.denominator]
    )
    counted = series.is_counted & ~np.isnan(above) & ~np.isnan(below)
    if not counted.any():
        return None
    columns = np.where(counted[:, None], np.stack([above, below], axis=1), 0.0)
    total, events = columns[:, 0].sum(), columns[:, 1].sum()
    value = float(total / events) if events > 0 else None
    influence = columns[:, 0] - (value or 0.0) * columns[:, 1]
    tau = autocorrelation_time(influence, counted)
    num_events = round(float(total) / metric.scale)
    return Measured(metric, columns, None, counted, value, round(float(events)), num_events, tau)


def _measure_quantile(metric: QuantileMetric, series: WindowSeries) -> Measured | None:
    lines = series.latencies.get(metric.latency)
    if lines is None:
        return None
    lines = lines.within(series.is_counted)
    if not len(lines.bucket):
        return None
    low, high = int(lines.bucket.min()), int(lines.bucket.max())
    columns = np.zeros((series.num_intervals, high - low + 1))
    columns[lines.interval, lines.bucket - low] = lines.count
    edges = np.array([bucket_edges(bucket)[0] for bucket in range(low, high + 2)]) * SECONDS_PER_NS
    total = columns.sum(axis=0)
    value = float(_quantiles(total[None, :], metric, edges)[0])
    # The share of the bucket around the quantile that lies below it belongs to what is below.
    below = np.clip((value - edges[:-1]) / np.maximum(np.diff(edges), 1e-12), 0.0, 1.0)
    influence = columns @ (below - metric.ratio)
    num = int(total.sum())
    tau = autocorrelation_time(influence, series.is_counted)
    return Measured(metric, columns, edges, series.is_counted, value, num, num, tau)


def _quantiles(sums: Floats, metric: Metric, edges: Floats | None) -> Floats:
    """Return the metric of each row of sums; NaN where a row has none."""
    if edges is None or isinstance(metric, RatioMetric):
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios: Floats = sums[:, 0] / sums[:, 1]
        return ratios
    running = np.cumsum(sums, axis=1)
    wanted = metric.ratio * running[:, -1]
    bucket = np.argmax(running >= np.maximum(wanted, 1e-9)[:, None], axis=1)
    row = np.arange(len(sums))
    inside = sums[row, bucket]
    # A bucket is 4.4 % wide; where in it the quantile lies is interpolated, or all draws would
    # give one of a few values and their spread would mean nothing.
    with np.errstate(divide="ignore", invalid="ignore"):
        part = 1.0 - (running[row, bucket] - wanted) / inside
    values: Floats = edges[bucket] + np.clip(part, 0.0, 1.0) * (edges[bucket + 1] - edges[bucket])
    return values
