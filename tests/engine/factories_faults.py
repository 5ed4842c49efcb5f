"""Simulated engines that misbehave: the journal, the truth, and what the agent's ledger says."""

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.ledger.ledger import Ledger
from engine.config import EngineConfig
from engine.faults.registry import read_fault
from engine.simulation.cost_model import CostModel
from engine.simulation.trace_recording import RecordedTrace, TraceRun, record_trace
from engine.simulation.workload import WorkloadShape, make_workload
from kvpulse.events import FORMS, Kind
from kvpulse.reader import StreamReader
from kvpulse.stream_values import expand_words
from tests.agent.factories_ledger import Stored, follow

CONFIG = EngineConfig(
    engine="faulted",
    total_blocks=256,
    max_batch=8,
    token_budget=512,
    max_queue=12,
    max_context=4_096,
    watermark_ratio=0.0,
)


@dataclass(frozen=True)
class Faulted:
    """One run that misbehaved."""

    recorded: RecordedTrace
    truth: list[dict[str, Any]]
    ledger: Ledger
    stored: Stored

    def truth_of(self, name: str) -> list[dict[str, Any]]:
        return [line for line in self.truth if line["fault"] == name]

    def leaked(self) -> set[tuple[int, int]]:
        """Owner and block of each leak that the ledger found."""
        return {(leak.owner, leak.block) for leak in self.stored.leaks}

    def told_lost(self) -> Counter[Kind]:
        """Events that the stream itself tells of as missing."""
        lost: Counter[Kind] = Counter()
        for batch in read(self.recorded.directory):
            if batch.gap is not None:
                lost.update({kind: batch.gap.lost[kind] for kind in Kind})
        return +lost

    def written(self) -> Counter[Kind]:
        """Events that the stream holds."""
        found: Counter[Kind] = Counter()
        for batch in read(self.recorded.directory):
            for record in batch.records:
                kind = Kind(int(record["kind"]))
                found[kind] += int(record["n"]) if FORMS[kind].counts_blocks else 1
        return found


def run_with(
    folder: Path, *faults: str, seconds: float = 90.0, rate: float = 1.5, requests: int = 150
) -> Faulted:
    """Send a small seeded workload, with cancels, through an engine with these faults."""
    shape = WorkloadShape(
        num_requests=requests,
        requests_per_second=rate,
        scale=0.06,
        max_context=4_096,
        cancel_ratio=0.15,
        seed=11,
    )
    truth = folder / "truth.jsonl"
    run = TraceRun(
        config=CONFIG,
        cost=CostModel(base_ns=10_000_000),
        seconds=seconds,
        faults=tuple(read_fault(fault) for fault in faults),
        faults_truth=truth,
    )
    requests_to_send = make_workload(shape, block_size=CONFIG.block_size)
    recorded = record_trace(requests_to_send, journal=folder / "journal", run=run)
    ledger, stored = follow(recorded.directory)
    return Faulted(recorded, lines_of(truth), ledger, stored)


def lines_of(truth: Path) -> list[dict[str, Any]]:
    """Return the truth; none where nothing happened."""
    return [json.loads(line) for line in truth.read_text().splitlines()] if truth.exists() else []


def read(directory: Path):
    """Yield a stream's batches."""
    with StreamReader(directory, is_alive=lambda: False) as reader:
        while (batch := reader.read()) is not None:
            yield batch


def records_of(directory: Path, kind: Kind) -> list[tuple[Any, list[int]]]:
    """Return each record of a kind with its payload words."""
    return [
        (batch.records[index], expand_words(batch, index).tolist())
        for batch in read(directory)
        for index in range(len(batch.records))
        if batch.records[index]["kind"] == kind
    ]
