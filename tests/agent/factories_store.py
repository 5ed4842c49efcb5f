"""Deltas, rows and positions that state only what a test is about."""

import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

from agent.ledger.delta import (
    Chunk,
    LatencyRow,
    LedgerDelta,
    RequestRow,
    RollupRow,
    RunShape,
)
from agent.rollups.histogram import Histogram
from agent.rollups.scalars import COLUMNS
from agent.store.store import Store
from agent.store.stream_id import Progress, StreamId
from kvpulse.events import MAX_KINDS, Kind
from kvpulse.stream_values import Position

NS = 1_000_000_000
OFFSET = 497_222 * 3600 * NS  # engine time 0 in wall time: a whole hour
SHAPE = RunShape(total_blocks=64, host_blocks=0, block_size=16)
STREAM = StreamId("engine-a", "run-1")


@cache
def _empty_store() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kvpulse.db"
        Store.open(str(path)).close()
        return path.read_bytes()


def empty_store(folder: Path) -> str:
    """Put an empty store into a folder: much faster than running the revisions once more."""
    path = folder / "kvpulse.db"
    path.write_bytes(_empty_store())
    return str(path)


def kinds(**named: int) -> tuple[int, ...]:
    """Return events per kind, 64 places, from lower-case names."""
    counts = [0] * MAX_KINDS
    for name, number in named.items():
        counts[Kind[name.upper()]] = number
    return tuple(counts)


def delta(seq: int, **changes: object) -> LedgerDelta:
    """Return a delta up to record `seq`, at engine time seq milliseconds."""
    plain = LedgerDelta(seq=seq, t_ns=seq * 1_000_000, wall_offset_ns=OFFSET)
    return replace(plain, **changes)


def chunk(seq0: int, num_records: int, blob: bytes = b"events") -> Chunk:
    """Return a chunk of records, one event each, one a millisecond."""
    return Chunk(
        seq0=seq0,
        num_records=num_records,
        num_events=num_records,
        t0_ns=seq0 * 1_000_000,
        t1_ns=(seq0 + num_records - 1) * 1_000_000,
        blob=blob,
        crc=1,
        hash_bytes=0,
    )


def progress(seq: int, *, segment: int = 0, behind: int = 0, at_ns: int = OFFSET) -> Progress:
    """Return a position after record `seq` of the first segment."""
    position = Position(segment=segment, record=seq, seq=seq)
    return Progress(position, behind, at_ns)


def rollup(tier: int, second: int, **values: int) -> RollupRow:
    """Return a rollup row at an engine second; what is not named was not measured."""
    return RollupRow(tier, second * NS, tuple(values.get(name) for name in COLUMNS))


def latency(tier: int, second: int, metric: str, values_ns: list[int]) -> LatencyRow:
    """Return a latency row over values."""
    histogram = Histogram()
    histogram.add(np.array(values_ns))
    p50, p95, p99 = (int(histogram.quantile(q) or 0) for q in (0.5, 0.95, 0.99))
    return LatencyRow(
        tier,
        second * NS,
        metric,
        histogram.count,
        histogram.sum_ns,
        histogram.min_ns or 0,
        histogram.max_ns or 0,
        p50,
        p95,
        p99,
        histogram.encode(),
    )


def request(owner: int, **changes: object) -> RequestRow:
    """Return a waiting sequence."""
    plain = RequestRow(
        owner=owner,
        parent=0,
        tenant=None,
        state="waiting",
        arrived_ns=owner * NS,
        admitted_ns=None,
        first_token_ns=None,
        ended_ns=None,
        end_reason=None,
        reject_reason=None,
        prompt_tokens=100,
        max_tokens=10,
        asked_max_tokens=None,
        output_tokens=None,
        priority=0,
        tier=0,
        retry=0,
        deadline_ns=None,
        request_hash=0,
        logical_blocks=None,
        physical_blocks=None,
        shared_within=None,
        shared_across=None,
        peak_blocks=0,
        filled_slots=None,
        block_seconds=None,
        wait_ns=None,
        wait_pool_ns=None,
        wait_scheduler_ns=None,
        wait_quota_ns=None,
        wait_transfer_ns=None,
        wait_after_preempt_ns=None,
        preemptions=0,
        preempted_by=(),
        recomputed_tokens=None,
        prefix_hit_tokens=0,
        alloc_failures={},
        time_to_first_block_ns=None,
        spans_gap=False,
    )
    return plain._replace(**changes)
