"""From a plan to a side: the engine in a process of its own, its journal through a ledger.

No store is written: the rollup rows that the ledger hands out are those that a store would keep (a
test compares the two), and writing them to a disk would only take time.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import numpy as np

from agent.baseline_drill.plan import RunPlan
from agent.baselines.first_tokens import POOL_BEHIND, FirstTokens, WaitedRequest
from agent.baselines.gather import Grid, HistogramRow, RunRows, gather
from agent.baselines.metrics import COUNTERS
from agent.baselines.side import Completeness, Side
from agent.baselines.window_series import NS
from agent.errors import AgentError
from agent.ledger.delta import LatencyRow, LedgerDelta, RequestRow, RollupRow, RunShape
from agent.ledger.joined_batches import joined_batches
from agent.ledger.ledger import Ledger
from agent.rollups.scalars import COLUMN_INDEX
from kvpulse.reader import StreamReader
from kvpulse.stream_values import Batch

TIER_SECONDS: Final = 10
WARM_UP_SECONDS: Final = 600  # in which the queue finds its length; not compared
RECORDS_AT_ONCE: Final = 262_144
ENGINE: Final = (sys.executable, "-m", "engine.commands.record_steady")


class EngineProcess:
    """Records one run after the other; a context manager, which ends the process."""

    def __init__(self) -> None:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(ENGINE, stdin=pipe, stdout=pipe, text=True)

    def side(self, plan: RunPlan) -> Side:
        """Record a run and return its window after the warm-up.

        Raises:
            AgentError: The process failed by itself; what it said is on standard error.
        """
        with tempfile.TemporaryDirectory() as folder:
            return side_of(self._record(plan, folder), hours=plan.hours)

    def _record(self, plan: RunPlan, folder: str) -> Path:
        asked = {
            "load": plan.load,
            "seconds": WARM_UP_SECONDS + plan.hours * 3600,
            "seed": plan.seed,
            "decode_ratio": plan.decode_ratio,
            "pool_ratio": plan.pool_ratio,
            "journal": folder,
        }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(asked), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            raise AgentError("the simulated engine ended by itself; its message is above")
        return Path(json.loads(answer)["directory"])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self._process.kill()
        self._process.communicate()


def side_of(directory: Path, *, hours: float) -> Side:
    """Follow a finished journal; return so many hours of it, after the warm-up."""
    rollups: dict[int, RollupRow] = {}
    latencies: dict[tuple[str, int], LatencyRow] = {}
    requests: dict[int, RequestRow] = {}
    fingerprint: dict[str, object] = {}
    offset_ns = 0
    for delta in _deltas(directory):
        offset_ns = delta.wall_offset_ns
        fingerprint.update(delta.config or {})
        requests.update({r.owner: r for r in delta.requests})
        rollups.update({r.t_ns: r for r in delta.rollups if r.tier_seconds == TIER_SECONDS})
        latencies.update(
            {(r.metric, r.t_ns): r for r in delta.latencies if r.tier_seconds == TIER_SECONDS}
        )
    grid = _grid(min(rollups) + offset_ns, hours)
    values = np.array(
        [[np.nan if v is None else v for v in row.values] for row in rollups.values()]
    )
    rows = RunRows(
        np.array(list(rollups), np.int64) + offset_ns,
        {name: values[:, COLUMN_INDEX[name]] for name in COUNTERS},
        [HistogramRow(r.t_ns + offset_ns, r.metric, r.histogram) for r in latencies.values()],
        np.zeros((0, 2), np.int64),
        FirstTokens.of(_waited(requests.values(), offset_ns)),
    )
    series, num_not_recorded, num_in_gaps = gather(grid, [rows])
    completeness = Completeness(grid.num_intervals, num_not_recorded, num_in_gaps, 0)
    plain = {k: v for k, v in fingerprint.items() if isinstance(v, str | int | float) or v is None}
    return Side("drill", "drill", series, completeness, plain)


def _waited(rows: Iterable[RequestRow], offset_ns: int) -> Iterator[WaitedRequest]:
    for row in rows:
        waits = (row.wait_scheduler_ns, row.wait_quota_ns, row.wait_transfer_ns)
        times = (row.arrived_ns, row.admitted_ns, row.first_token_ns)
        known = [value for value in (*times, *waits, row.wait_pool_ns) if value is not None]
        if row.parent or len(known) < 7 or row.wait_ns is None:
            continue
        *moments, scheduler, quota, transfer, pool = known
        arrived, admitted, first_token = (moment + offset_ns for moment in moments)
        behind = row.wait_ns.get(POOL_BEHIND, 0)
        yield WaitedRequest(
            arrived, admitted, first_token, pool, behind, scheduler, quota, transfer
        )


def _grid(start_ns: int, hours: float) -> Grid:
    step = TIER_SECONDS * NS
    first = -(-(start_ns + WARM_UP_SECONDS * NS) // step)
    return Grid(TIER_SECONDS, first * step, int(hours * 3600) // TIER_SECONDS)


def _deltas(directory: Path) -> list[LedgerDelta]:
    reader = StreamReader(directory, is_alive=lambda: False)
    ledger: Ledger | None = None
    deltas = []
    while batches := _read_some(reader):
        for batch in joined_batches(batches):
            if ledger is None:
                shape = RunShape(batch.total_blocks, batch.host_blocks, batch.block_size)
                ledger = Ledger(shape)
            ledger.apply(batch)
        assert ledger is not None
        deltas.append(ledger.take())
    reader.close()
    if ledger is None:
        raise AgentError(f"the simulated engine recorded nothing in {directory}")
    ledger.close()
    return [*deltas, ledger.take()]


def _read_some(reader: StreamReader) -> list[Batch]:
    batches: list[Batch] = []
    num_records = 0
    while num_records < RECORDS_AT_ONCE:
        batch = reader.read(RECORDS_AT_ONCE)
        if batch is None:
            break
        batches.append(batch)
        num_records += len(batch.records)
    return batches
