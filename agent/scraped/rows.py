"""Rollup rows of a scraped engine: each look changes one interval of every tier; pure.

A counter's increase belongs to the interval of the look that found it: when in the 15 s before it
moved, nobody knows. What the page does not tell is None in every row, never 0.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from agent.ledger.delta import LabelledRow, LatencyRow, RollupRow
from agent.ledger.intervals import interval_start
from agent.rollups.histogram import Histogram
from agent.rollups.latency import QUANTILES
from agent.rollups.scalars import COLUMNS, COUNTERS, GAUGES, RANGED_GAUGES, RANGES, TIERS

Label = tuple[str, str]  # family, label

COUNTED: Final = frozenset(COUNTERS)


@dataclass(frozen=True, slots=True)
class Interval:
    """What is known of one interval.

    Attributes:
        start_ns: Wall ns.
        values: By column of `agent.rollups.scalars.COLUMNS`; one that is missing is not measured.
    """

    start_ns: int
    values: Mapping[str, int] = field(default_factory=dict)
    histograms: Mapping[str, Histogram] = field(default_factory=dict)
    labelled: Mapping[Label, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rows:
    """Whole replacements for the rows of the intervals that a look changed."""

    rollups: tuple[RollupRow, ...]
    latencies: tuple[LatencyRow, ...]
    labelled: tuple[LabelledRow, ...]


def with_ranges(values: Mapping[str, int]) -> dict[str, int]:
    """Return a look's values with the least and the greatest of those gauges that carry them."""
    ends = {
        f"{name}_{end}": values[name]
        for name in RANGED_GAUGES
        if name in values
        for end in ("min", "max")
    }
    return {**values, **ends}


def opened(open_: Mapping[int, Interval], look: Interval, t_ns: int) -> dict[int, Interval]:
    """Return each tier's open interval once a look at `t_ns` is part of it."""
    found = {}
    for tier in TIERS:
        start_ns = interval_start(t_ns, wall_offset_ns=0, tier_seconds=tier)
        before = open_.get(tier)
        goes_on = before is not None and before.start_ns == start_ns
        found[tier] = _merged(before if goes_on and before else Interval(start_ns), look)
    return found


def _merged(into: Interval, look: Interval) -> Interval:
    values = dict(into.values)
    for name, value in look.values.items():
        values[name] = _joined(name, values.get(name), value)
    histograms = dict(into.histograms)
    for name, histogram in look.histograms.items():
        histograms[name] = histograms[name].copy() if name in histograms else Histogram()
        histograms[name].merge(histogram)
    labelled = dict(into.labelled)
    for label, value in look.labelled.items():
        labelled[label] = labelled.get(label, 0) + value
    return Interval(into.start_ns, values, histograms, labelled)


def _joined(name: str, before: int | None, now: int) -> int:
    if before is None or name in GAUGES:
        return now
    if name in COUNTED:
        return before + now
    assert name in RANGES
    return min(before, now) if name.endswith("_min") else max(before, now)


def rows_of(intervals: Mapping[int, Interval], look: Interval) -> Rows:
    """Return the rows of every tier's interval, of what a look had something to say about."""
    return Rows(
        tuple(
            RollupRow(tier, each.start_ns, tuple(each.values.get(name) for name in COLUMNS))
            for tier, each in intervals.items()
        ),
        tuple(
            _latency_row(tier, each.start_ns, name, each.histograms[name])
            for tier, each in intervals.items()
            for name in look.histograms
        ),
        tuple(
            LabelledRow(tier, each.start_ns, *label, each.labelled[label])
            for tier, each in intervals.items()
            for label in look.labelled
        ),
    )


def _latency_row(tier: int, start_ns: int, name: str, histogram: Histogram) -> LatencyRow:
    middles = [int(histogram.quantile(ratio) or 0) for ratio in QUANTILES]
    return LatencyRow._make(
        (
            *(tier, start_ns, name, histogram.count, histogram.sum_ns),
            *(histogram.min_ns, histogram.max_ns, *middles, histogram.encode()),
        )
    )
