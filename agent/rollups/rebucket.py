"""From the ledger's exponential histograms to Prometheus' fixed edges."""

from typing import Final, NamedTuple

import numpy as np

from agent.rollups.histogram import MIDDLES, Histogram

NS_PER_SECOND: Final = 1_000_000_000


class Bucketed(NamedTuple):
    """A histogram as the exposition format has it."""

    buckets: tuple[tuple[str, int], ...]  # (upper edge, samples at or below it), last "+Inf"
    sum_seconds: float


def rebucket(histogram: Histogram, edges: tuple[float, ...]) -> Bucketed:
    """Count the samples at or below each edge.

    A source bucket that straddles an edge goes whole to one side: below, if its middle is. So a
    sample may be counted one bucket off if it lies within 2.2 % of an edge, counts stay whole
    numbers, and as a source bucket always goes to the same side, no count ever falls.

    Args:
        histogram: Durations in ns.
        edges: Ascending upper edges in seconds, without +Inf.
    """
    num_below = np.searchsorted(MIDDLES, np.asarray(edges) * NS_PER_SECOND, side="right")
    running = np.concatenate(([0], np.cumsum(histogram.counts)))
    names = [*map(repr, edges), "+Inf"]
    counts = [*running[num_below].tolist(), int(running[-1])]
    return Bucketed(tuple(zip(names, counts, strict=True)), histogram.sum_ns / NS_PER_SECOND)
