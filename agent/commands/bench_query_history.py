"""Synthetic history for `kvpulse bench query`: a month of one engine's rollups, by the store's way.

Every hour repeats one seeded hour of second-long intervals; coarser ones are summed from these. So
what a question must give back is known beforehand, and the store's rows are as many, and as wide,
as those of a real month: scalars in all four tiers, every latency in those of 60 s and 3,600 s.
"""

import sys
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from agent.ledger.delta import LatencyRow, LedgerDelta, RollupRow, RunShape
from agent.reads.models import Int64Array
from agent.rollups.histogram import Histogram
from agent.rollups.scalars import COLUMNS, GAUGES, LATENCIES, RANGED_GAUGES, RANGES, TIERS
from agent.store.store import Store
from agent.store.stream_id import Progress, StreamId
from kvpulse.stream_values import Position

NS: Final = 1_000_000_000
HOUR: Final = 3_600
STREAM: Final = StreamId("month", "synthetic")
SHAPE: Final = RunShape(total_blocks=16_384, host_blocks=0, block_size=16)
START_NS: Final = 1_790_000_000 // HOUR * HOUR * NS  # engine time 0 in wall time
HOURS_PER_COMMIT: Final = 6
LATENCY_TIERS: Final = TIERS[2:]
SAMPLES: Final = 200  # in each latency row


class History(NamedTuple):
    """What was written, and what questions about it must give back."""

    run_key: int
    start_ns: int
    end_ns: int
    num_rows: int
    arrived_per_hour: int


class _Hour(NamedTuple):
    """The hour that repeats: the values of each tier's intervals, in order."""

    values: dict[int, list[tuple[int | None, ...]]]
    arrived: int


def write_history(store: Store, *, hours: int, seed: int) -> History:
    """Store so many hours of one engine that is still running; progress goes to stderr."""
    hour = _make_hour(np.random.default_rng(seed))
    histogram = _make_latency(np.random.default_rng(seed))
    writer = store.writer(STREAM)
    # The first commit says when the run began.
    key = writer.commit(
        LedgerDelta(seq=0, t_ns=0, wall_offset_ns=START_NS),
        SHAPE,
        Progress(Position(0, 0, 0), 0, START_NS),
    )
    num_rows = 0
    for begin in range(0, hours, HOURS_PER_COMMIT):
        end = min(begin + HOURS_PER_COMMIT, hours)
        rollups = tuple(_rollups(hour, begin, end))
        latencies = tuple(_latencies(histogram, begin, end))
        num_rows += len(rollups) + len(latencies)
        delta = LedgerDelta(
            seq=end,
            t_ns=end * HOUR * NS - 1,
            wall_offset_ns=START_NS,
            rollups=rollups,
            latencies=latencies,
        )
        at_ns = START_NS + delta.t_ns
        writer.commit(delta, SHAPE, Progress(Position(0, end, end), 0, at_ns))
        if end % 24 == 0 or end == hours:
            print(f"history: {end} of {hours} hours, {num_rows:,} rows", file=sys.stderr)
    writer.release()
    return History(key, START_NS, START_NS + hours * HOUR * NS, num_rows, hour.arrived)


def _make_hour(random: np.random.Generator) -> _Hour:
    seconds = {name: random.integers(0, 20_000, HOUR) for name in COLUMNS}
    for name in GAUGES:
        if name.startswith("host_"):
            del seconds[name]  # the engine has no host tier: nobody measured it
    active = random.integers(0, SHAPE.total_blocks, HOUR)
    cached = random.integers(0, SHAPE.total_blocks - active)
    blocks = {
        "active_blocks": active,
        "cached_blocks": cached,
        "free_blocks": SHAPE.total_blocks - active - cached,
        "total_blocks": np.full(HOUR, SHAPE.total_blocks),
    }
    for name in RANGED_GAUGES:
        blocks |= {f"{name}_min": blocks[name], f"{name}_max": blocks[name]}
    seconds |= blocks
    return _Hour({tier: _summed(seconds, tier) for tier in TIERS}, int(seconds["arrived"].sum()))


def _summed(seconds: dict[str, Int64Array], tier: int) -> list[tuple[int | None, ...]]:
    """Return the rows of a tier: gauges as they were last, ranges widened, counters added up."""
    columns: list[list[int] | list[None]] = []
    for name in COLUMNS:
        if name not in seconds:
            columns.append([None] * (HOUR // tier))
            continue
        by_interval = seconds[name].reshape(-1, tier)
        if name in GAUGES:
            column = by_interval[:, -1]
        elif name in RANGES:
            column = by_interval.min(1) if name.endswith("_min") else by_interval.max(1)
        else:
            column = by_interval.sum(1)
        columns.append(column.tolist())
    return list(zip(*columns, strict=True))


def _rollups(hour: _Hour, begin: int, end: int) -> Iterator[RollupRow]:
    for tier, rows in hour.values.items():
        first = begin * HOUR * NS
        for place in range((end - begin) * HOUR // tier):
            yield RollupRow(tier, first + place * tier * NS, rows[place % len(rows)])


def _make_latency(random: np.random.Generator) -> Histogram:
    histogram = Histogram()
    histogram.add(random.lognormal(18.0, 1.0, SAMPLES).astype(np.int64))
    return histogram


def _latencies(histogram: Histogram, begin: int, end: int) -> Iterator[LatencyRow]:
    p50, p95, p99 = (int(histogram.quantile(ratio) or 0) for ratio in (0.5, 0.95, 0.99))
    ends = (histogram.sum_ns, histogram.min_ns or 0, histogram.max_ns or 0)
    values = (histogram.count, *ends, p50, p95, p99, histogram.encode())
    for tier in LATENCY_TIERS:
        for t_ns in range(begin * HOUR * NS, end * HOUR * NS, tier * NS):
            for metric in LATENCIES:
                yield LatencyRow(tier, t_ns, metric, *values)
