"""Ledgers fed from a recorded stream, what they handed out, and comparisons of two."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from agent.chunks.chunk import Stretch
from agent.ledger.delta import LedgerDelta, RequestRow, RollupRow, RunShape
from agent.ledger.ledger import Ledger
from agent.ledger.plain_ledger import PlainLedger
from agent.rollups.scalars import COLUMN_INDEX
from kvpulse.stream_values import Batch
from tests.agent.factories_stream import WALL_AT_START, batches


@dataclass
class Stored:
    """What a store would hold: the newest row for each key."""

    deltas: list[LedgerDelta] = field(default_factory=list)
    rollups: dict[tuple[int, int], RollupRow] = field(default_factory=dict)
    latencies: dict[tuple, tuple] = field(default_factory=dict)
    labelled: dict[tuple, int] = field(default_factory=dict)
    requests: dict[int, RequestRow] = field(default_factory=dict)

    def put(self, delta: LedgerDelta) -> None:
        self.deltas.append(delta)
        for row in delta.rollups:
            self.rollups[row.tier_seconds, row.t_ns] = row
        for row in delta.latencies:
            self.latencies[row[:3]] = row[3:]
        for row in delta.labelled:
            self.labelled[row[:4]] = row.value
        self.requests.update((row.owner, row) for row in delta.requests)

    def sums(self, tier: int, name: str) -> dict[int, int]:
        at = COLUMN_INDEX[name]
        return {t: row.values[at] for (of, t), row in self.rollups.items() if of == tier}

    def total(self, tier: int, name: str) -> int:
        return sum(self.sums(tier, name).values())

    @property
    def failures(self) -> list:
        return [failure for delta in self.deltas for failure in delta.audits.failures]

    @property
    def leaks(self) -> list:
        return [leak for delta in self.deltas for leak in delta.leaks]


def new_ledger(batch: Batch) -> Ledger:
    return Ledger(RunShape(batch.total_blocks, batch.host_blocks, batch.block_size))


def follow(stream: Path, *, max_events: int = 65_536, take_each: int = 1) -> tuple[Ledger, Stored]:
    """Feed a stream to a new ledger; take after every so many batches."""
    ledger, stored = None, Stored()
    for number, batch in enumerate(batches(stream, max_events=max_events), start=1):
        ledger = ledger or new_ledger(batch)
        ledger.apply(batch)
        if number % take_each == 0:
            stored.put(ledger.take())
    stored.put(ledger.take())
    stored.put(ledger.take())  # without news: what was held back of coarse tiers
    return ledger, stored


def plain(stream: Path, total_blocks: int) -> PlainLedger:
    """Feed a stream to the plain ledger."""
    ledger = PlainLedger(total_blocks, WALL_AT_START)
    for batch in batches(stream):
        ledger.apply(Stretch(batch.seq0, batch.records, batch.lane, batch.lane_base))
    ledger.pay_all()
    ledger.settle_all()
    return ledger


def same_rows(left: Stored, right: Stored) -> None:
    """Everything that does not depend on when it was taken is equal."""
    assert left.rollups == right.rollups
    assert left.latencies == right.latencies
    assert left.labelled == right.labelled
    assert left.requests.keys() == right.requests.keys()
    for owner, row in left.requests.items():
        other = right.requests[owner]
        if row.ended_ns is not None:
            assert row.wait_ns == other.wait_ns
            assert row.peak_blocks == other.peak_blocks
            assert np.isclose(row.block_seconds or 0, other.block_seconds or 0, rtol=1e-9)
