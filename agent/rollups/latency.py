"""Latency histograms of every tier, kept sparse: one line for each bucket that holds something."""

from dataclasses import dataclass, field
from itertools import pairwise, zip_longest
from typing import Final

import numpy as np

from agent.ledger.delta import LatencyRow
from agent.ledger.event_columns import Ints
from agent.ledger.runs import differences, heads_of, lengths_of
from agent.rollups.histogram import MIDDLES, NUM_BUCKETS, Histogram, bucket_of, varints
from agent.rollups.rollup import group_starts
from agent.rollups.scalars import LATENCIES, TIERS

NUM_METRICS: Final = len(LATENCIES)
QUANTILES: Final = (0.5, 0.95, 0.99)


@dataclass(frozen=True, slots=True)
class Samples:
    """Durations to be added: which metric, when it belongs, how long, how many times."""

    metric: Ints
    start_ns: Ints  # of the second
    value_ns: Ints
    weight: Ints


@dataclass(frozen=True, slots=True)
class Sparse:
    """Histograms by (start, metric); a line is one bucket of one."""

    start: Ints  # per histogram
    metric: Ints  # per histogram
    head: Ints  # per histogram: its first line
    stats: Ints  # per histogram: count, sum, least, greatest
    bucket: Ints  # per line
    count: Ints  # per line

    def lengths(self) -> Ints:
        """Return how many lines each histogram has."""
        return lengths_of(self.head, len(self.bucket))


def _empty() -> Sparse:
    none = np.zeros(0, np.int64)
    return Sparse(none, none, none, np.zeros((0, 4), np.int64), none, none)


def sparse_of(samples: Samples) -> Sparse:
    """Count samples into histograms per second and metric."""
    if not len(samples.metric):
        return _empty()
    value = np.maximum(samples.value_ns, 0)
    first = int(samples.start_ns.min())
    place = (samples.start_ns - first) // 1_000_000_000 * NUM_METRICS + samples.metric
    key = place * NUM_BUCKETS + bucket_of(value)
    order = np.argsort(key)
    key, value, weight = key[order], value[order], samples.weight[order]
    lines = heads_of(key)
    line_key = key[lines]
    head = heads_of(line_key // NUM_BUCKETS)
    at = lines[head]
    stats = np.stack(
        [
            np.add.reduceat(weight, at),
            np.add.reduceat(value * weight, at),
            np.minimum.reduceat(value, at),
            np.maximum.reduceat(value, at),
        ],
        axis=1,
    )
    starts = samples.start_ns[order][at]
    count = np.add.reduceat(weight, lines)
    bucket = line_key % NUM_BUCKETS
    return Sparse(starts, line_key[head] // NUM_BUCKETS % NUM_METRICS, head, stats, bucket, count)


def _regroup(parts: list[Sparse], *, wall_offset_ns: int, tier: int) -> Sparse:
    """Merge histograms that fall into the same interval of a tier."""
    start = np.concatenate([part.start for part in parts])
    start = group_starts(start, wall_offset_ns=wall_offset_ns, tier_seconds=tier)
    metric = np.concatenate([part.metric for part in parts])
    lengths = np.concatenate([part.lengths() for part in parts])
    stats = np.concatenate([part.stats for part in parts])
    distinct = np.unique(start)
    place = np.searchsorted(distinct, start) * NUM_METRICS + metric
    bucket = np.concatenate([part.bucket for part in parts])
    key = np.repeat(place, lengths) * NUM_BUCKETS + bucket
    order = np.argsort(key)
    lines = heads_of(key[order])
    line_key = key[order][lines]
    count = np.add.reduceat(np.concatenate([part.count for part in parts])[order], lines)
    head = heads_of(line_key // NUM_BUCKETS)
    by_place = np.argsort(place, kind="stable")
    at = heads_of(place[by_place])
    stats = stats[by_place]
    merged = np.concatenate(
        [
            np.add.reduceat(stats[:, :2], at, axis=0),
            np.minimum.reduceat(stats[:, 2:3], at, axis=0),
            np.maximum.reduceat(stats[:, 3:4], at, axis=0),
        ],
        axis=1,
    )
    places = place[by_place][at]
    return Sparse(
        distinct[places // NUM_METRICS],
        places % NUM_METRICS,
        head,
        merged,
        line_key % NUM_BUCKETS,
        count,
    )


def _only(table: Sparse, start: int) -> Sparse:
    """Return the histograms of one interval."""
    chosen = table.start == start
    lines = np.repeat(chosen, table.lengths())
    lengths = table.lengths()[chosen]
    return Sparse(
        table.start[chosen],
        table.metric[chosen],
        np.cumsum(lengths) - lengths,
        table.stats[chosen],
        table.bucket[lines],
        table.count[lines],
    )


@dataclass(slots=True)
class LatencyRollups:
    """The latency metrics of all tiers, and their totals since the run began.

    Coarse tiers take in what came only when they are asked for: merging costs more than adding.
    """

    wall_offset_ns: int = 0
    open: dict[int, Sparse] = field(default_factory=lambda: dict.fromkeys(TIERS, _empty()))
    totals: list[Histogram] = field(default_factory=lambda: [Histogram() for _ in LATENCIES])
    _changed: dict[int, list[Sparse]] = field(default_factory=dict)
    # For each tier but the first, histograms of the finer one that it has not taken in.
    _waiting: dict[int, list[Sparse]] = field(
        default_factory=lambda: {tier: [] for tier in TIERS[1:]}
    )

    def add(self, samples: Samples) -> None:
        """Add durations; none may belong before an interval that was closed already."""
        table = sparse_of(samples)
        if not len(table.start):
            return
        self._add_to_totals(table)
        self._add_to_tier(TIERS[0], table)
        self._waiting[TIERS[1]].append(table)

    def merge_waiting(self, up_to: int = TIERS[-1]) -> None:
        """Let the tiers up to one take in what was added since the last time."""
        for tier, coarser in zip_longest(TIERS[1:], TIERS[2:]):
            waiting = self._waiting[tier]
            if tier > up_to or not waiting:
                continue
            share = _regroup(waiting, wall_offset_ns=self.wall_offset_ns, tier=tier)
            waiting.clear()
            self._add_to_tier(tier, share)
            if coarser:
                self._waiting[coarser].append(share)

    def _add_to_totals(self, table: Sparse) -> None:
        edges = [*table.head.tolist(), len(table.bucket)]
        for metric, stats, (low, high) in zip(
            table.metric.tolist(), table.stats.tolist(), pairwise(edges), strict=True
        ):
            self.totals[metric].add_buckets(table.bucket[low:high], table.count[low:high], *stats)

    def _add_to_tier(self, tier: int, table: Sparse) -> None:
        offset, open_ = self.wall_offset_ns, self.open[tier]
        first = group_starts(table.start[:1], wall_offset_ns=offset, tier_seconds=tier)
        goes_on = len(open_.start) > 0 and open_.start[0] == first[0]
        merged = table
        if goes_on:
            merged = _regroup([open_, table], wall_offset_ns=offset, tier=tier)
        self.open[tier] = _only(merged, int(merged.start[-1]))
        self._changed.setdefault(tier, []).append(merged)

    def take(self, up_to: int = TIERS[-1]) -> tuple[LatencyRow, ...]:
        """Return every changed row not taken yet, of the tiers up to one."""
        self.merge_waiting(up_to)
        changed, self._changed = self._changed, {}
        rows: dict[tuple[int, int, str], LatencyRow] = {}
        for tier, tables in changed.items():
            for table in tables:
                rows.update(
                    ((tier, row.t_ns, row.metric), row) for row in latency_rows(tier, table)
                )
        return tuple(rows.values())

    def forget_closed(self) -> None:
        """Count every interval but the open ones as handed out."""
        self.merge_waiting()
        self._changed = {tier: [self.open[tier]] for tier in self._changed}


def latency_rows(tier: int, table: Sparse) -> list[LatencyRow]:
    """Return one row for each histogram."""
    running = np.cumsum(table.count)
    base = running[table.head] - table.count[table.head]
    quantiles = np.stack([_quantiles(table, running, base, ratio) for ratio in QUANTILES], axis=1)
    rows = zip(
        table.start.tolist(),
        table.metric.tolist(),
        table.stats.tolist(),
        quantiles.tolist(),
        _blobs(table),
        strict=True,
    )
    return [
        LatencyRow._make((tier, start, LATENCIES[metric], *stats, *middle, blob))
        for start, metric, stats, middle, blob in rows
    ]


def _quantiles(table: Sparse, running: Ints, base: Ints, ratio: float) -> Ints:
    rank = np.maximum(np.ceil(ratio * table.stats[:, 0]).astype(np.int64), 1)
    at = np.searchsorted(running, base + rank)
    middle = MIDDLES[table.bucket[at]]
    within: Ints = np.clip(middle, table.stats[:, 2], table.stats[:, 3]).astype(np.int64)
    return within


def _blobs(table: Sparse) -> list[bytes]:
    pairs = np.empty(2 * len(table.bucket), np.int64)
    steps = differences(table.bucket, before=0)
    steps[table.head] = table.bucket[table.head]
    pairs[0::2], pairs[1::2] = steps, table.count
    data, starts = varints(pairs)
    edges = [*starts[2 * table.head].tolist(), len(data)]
    return [b"\x01" + data[low:high] for low, high in pairwise(edges)]
