"""From a page's buckets to the store's histogram: the edges stay, within them the place is a guess.

A bucket's samples are put at the middle of their bucket (geometric, as durations spread over orders
of magnitude), so counts at or below each of the page's own edges stay exact, and the sum is the
page's. A quantile is the middle of its bucket. What lies beyond the last edge is put right there.
"""

from itertools import pairwise
from typing import Final

import numpy as np

from agent.rollups.histogram import Histogram
from agent.scraped.reading import Buckets

BELOW_THE_FIRST: Final = (
    4.0  # the lowest bucket reaches from 0: its middle is a quarter of its edge
)
BEYOND_THE_LAST: Final = 1.1


def middles_ns(bounds: tuple[float, ...]) -> np.ndarray:
    """Return where each bucket's samples are put, in ns: one more than there are bounds."""
    if not bounds:
        return np.zeros(1, np.int64)
    inner = [(low * high) ** 0.5 for low, high in pairwise(bounds)]
    seconds = [bounds[0] / BELOW_THE_FIRST, *inner, bounds[-1] * BEYOND_THE_LAST]
    return (np.asarray(seconds) * 1e9).astype(np.int64)


def histogram_of(buckets: Buckets) -> Histogram:
    """Return a histogram of samples counted per bucket (not cumulative)."""
    counts = np.asarray(buckets.counts).round().astype(np.int64)
    told = counts > 0
    histogram = Histogram()
    histogram.add(middles_ns(buckets.bounds)[told], counts[told])
    histogram.sum_ns = round(buckets.sum_seconds * 1e9)
    return histogram
