"""A window of one scraped engine: a line for each reading, as the rollups have it; pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from agent.reads.models import LatencySummary
from agent.rollups.histogram import Histogram
from agent.scraped.bucketed import histogram_of
from agent.scraped.moves import Moves, is_restart, moves
from agent.scraped.pool import held_blocks, usable_blocks
from agent.scraped.reading import Reading, Stated

Floats = npt.NDArray[np.float64]
COUNTED = (
    *("preempted", "admitted", "finished", "rejected", "prefill_tokens", "decode_tokens"),
    *("steps", "recomputed_tokens", "prefix_hit_tokens"),
)


@dataclass(frozen=True, slots=True)
class ScrapedWindow:
    """Readings in time's order; NaN is what was not told.

    Attributes:
        t_ns: [n] int64, of each reading.
        running, waiting, deferred, usage, active: [n], at that moment. `active` is in blocks.
        counted: [n] each, increases since the reading before; NaN for the first.
        total_blocks: That can hold a sequence's tokens.
        latencies: Of all that ended between the first and the last reading.
        since_start: Mean seconds between tokens, and mean prompt tokens, from the engine's start to
            the first reading.
    """

    t_ns: npt.NDArray[np.int64]
    running: Floats
    waiting: Floats
    deferred: Floats
    usage: Floats
    active: Floats
    counted: dict[str, Floats]
    stated: Stated
    total_blocks: int | None
    latencies: dict[str, LatencySummary] = field(default_factory=dict)
    since_start: dict[str, float] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """Return the time from the first reading to the last."""
        return float(self.t_ns[-1] - self.t_ns[0]) / 1e9


def window_of(readings: Sequence[Reading]) -> ScrapedWindow:
    """Return the window of an engine's readings; those before a restart are left out."""
    starts = [at for at, pair in enumerate(pairwise(readings), 1) if is_restart(*pair)]
    kept = list(readings[starts[-1] :] if starts else readings)
    steps = [moves(*pair) for pair in pairwise(kept)]
    usable = usable_blocks(kept[-1].stated, (each.usage_ratio for each in kept))
    return ScrapedWindow(
        t_ns=np.array([each.t_ns for each in kept], np.int64),
        running=_floats([each.running for each in kept]),
        waiting=_floats([each.waiting for each in kept]),
        deferred=_floats([each.deferred for each in kept]),
        usage=_floats([each.usage_ratio for each in kept]),
        active=_floats([held_blocks(each.usage_ratio, usable) for each in kept]),
        counted={
            name: _floats([None, *(step.counters.get(name) for step in steps)]) for name in COUNTED
        },
        stated=kept[-1].stated,
        total_blocks=usable,
        latencies=_latencies(steps),
        since_start=since_start(kept[0]),
    )


def _floats(values: Sequence[float | None]) -> Floats:
    return np.array([np.nan if value is None else value for value in values], np.float64)


def _latencies(steps: Sequence[Moves]) -> dict[str, LatencySummary]:
    merged: dict[str, Histogram] = {}
    for step in steps:
        for name, buckets in step.histograms.items():
            merged.setdefault(name, Histogram()).merge(histogram_of(buckets))
    return {name: summary for name, each in merged.items() if (summary := summary_of(each))}


def summary_of(histogram: Histogram) -> LatencySummary | None:
    """Return a histogram as a summary in seconds; None without samples."""
    p50, p95, p99 = (histogram.quantile(ratio) for ratio in (0.5, 0.95, 0.99))
    low, high = histogram.min_ns, histogram.max_ns
    if p50 is None or p95 is None or p99 is None or low is None or high is None:
        return None
    seconds = [value / 1e9 for value in (low, p50, p95, p99, high)]
    return LatencySummary(histogram.count, histogram.sum_ns / 1e9, *seconds)


def since_start(first: Reading) -> dict[str, float]:
    """Return means from the engine's start to a reading."""
    found = {}
    tokens = first.histograms.get("inter_token")
    if tokens is not None and tokens.counts[-1] > 0:
        found["inter_token_seconds"] = tokens.sum_seconds / tokens.counts[-1]
    if first.mean_prompt_tokens is not None:
        found["prompt_tokens"] = first.mean_prompt_tokens
    return found
