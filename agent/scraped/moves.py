"""What happened between two readings of the same engine; pure.

Counters run since the engine's start. One that is lower than before means that the engine was
started anew: then nothing of the former reading may be subtracted, and a new run begins.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from agent.scraped.reading import Buckets, Reading

MAY_DIFFER_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class Moves:
    """Increases from one reading to the next; what either does not tell is missing."""

    seconds: float
    counters: Mapping[str, int]
    labelled: Mapping[str, Mapping[str, int]]
    histograms: Mapping[str, Buckets]  # counts per bucket, not cumulative; the last is beyond all


def is_restart(before: Reading, after: Reading) -> bool:
    """Say whether the engine was started between two readings."""
    first, second = before.stated.started_at_seconds, after.stated.started_at_seconds
    if first is not None and second is not None and abs(second - first) > MAY_DIFFER_SECONDS:
        return True
    fell = any(after.counters.get(name, value) < value for name, value in before.counters.items())
    return fell or any(
        after.histograms[name].counts[-1] < buckets.counts[-1]
        for name, buckets in before.histograms.items()
        if name in after.histograms
    )


def moves(before: Reading, after: Reading) -> Moves:
    """Return the increases; the two readings are of the same start of the engine."""
    return Moves(
        seconds=(after.t_ns - before.t_ns) / 1e9,
        counters=_increases(before.counters, after.counters),
        labelled={
            family: _increases(before.labelled[family], by_label, absent=0.0)
            for family, by_label in after.labelled.items()
            if family in before.labelled
        },
        histograms={
            name: increase
            for name, buckets in after.histograms.items()
            if name in before.histograms
            and (increase := _bucket_increase(before.histograms[name], buckets)) is not None
        },
    )


def _increases(
    before: Mapping[str, float], after: Mapping[str, float], *, absent: float | None = None
) -> dict[str, int]:
    """Return the increases of what both have; `absent` stands for a label that is new."""
    found = {}
    for name, value in after.items():
        earlier = before.get(name, absent)
        if earlier is not None:
            found[name] = max(0, round(value - earlier))
    return found


def per_bucket(buckets: Buckets) -> Buckets:
    """Return a page's cumulative counts as counts of each bucket."""
    counts = (buckets.counts[0], *(b - a for a, b in pairwise(buckets.counts)))
    return Buckets(buckets.bounds, counts, buckets.sum_seconds)


def _bucket_increase(before: Buckets, after: Buckets) -> Buckets | None:
    if before.bounds != after.bounds:
        return None
    risen = [b - a for a, b in zip(before.counts, after.counts, strict=True)]
    counts = (risen[0], *(b - a for a, b in pairwise(risen)))
    # Buckets are read one after the other while the engine goes on: one may be a sample ahead.
    counts = tuple(max(0.0, count) for count in counts)
    return Buckets(after.bounds, counts, max(0.0, after.sum_seconds - before.sum_seconds))
