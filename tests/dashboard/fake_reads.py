"""A `Reads` made by hand, for states that a recorded run reaches only by luck."""

import time
from dataclasses import dataclass, field, replace

import numpy as np

from agent.head_of_line import HeadOfLine
from agent.reads.baselines import BaselineRow
from agent.reads.broken_laws import BrokenLaw
from agent.reads.gpus import GpuHistory, GpuSeries
from agent.reads.incidents import IncidentRow
from agent.reads.models import (
    ClockStep,
    EngineRow,
    GapRow,
    KindTotal,
    LabelledSeries,
    LatencySeries,
    LatencySummary,
    Leak,
    Mark,
    MarkKind,
    Position,
    RequestEvent,
    RequestRow,
    RequestState,
    RunState,
    Series,
    TelemetryHealth,
    TenantRow,
    WaitingSequence,
)
from tests.dashboard.factories_rows import block_map_with_all_states, engine_row, request_row

SECOND = 1_000_000_000


@dataclass
class FakeReads:
    """Answers from plain values; change a field to reach another state."""

    now_ns: int = field(default_factory=time.time_ns)
    num_blocks: int = 512
    num_engines: int = 1
    state: RunState = RunState.LIVE
    commit_age_seconds: float = 0.3
    num_waiting: int = 7
    num_leaks: int = 0
    gpu_series: tuple[GpuSeries, ...] = ()
    audits_failed: int = 0
    with_gap: bool = False
    tenant: str = "search"
    measured: bool = True
    request_states: tuple[RequestState, ...] = tuple(RequestState)
    shares: bool = True
    num_tenants: int = 4
    held_up: bool = False

    def engines(self) -> list[EngineRow]:
        rows = []
        for number in range(self.num_engines):
            quiet = number > 0
            row = engine_row(
                self.now_ns,
                engine=f"llm-{number}",
                run_key=number + 1,
                total_blocks=self.num_blocks,
                waiting=0 if quiet else self.num_waiting,
                measured=self.measured,
            )
            rows.append(
                replace(
                    row,
                    state=self.state,
                    num_gaps=int(self.with_gap),
                    events_lost=412 if self.with_gap else 0,
                    audits_failed=self.audits_failed,
                )
            )
        return rows

    def run(self, run_key) -> EngineRow | None:
        return next((row for row in self.engines() if row.run_key == run_key), None)

    def waiting(self, run_key) -> list[WaitingSequence]:
        return []

    def mean_prompt_tokens(self, run_key, start_ns, end_ns) -> float | None:
        return 812.0 if self.measured else None

    def grid(self, start_ns: int, end_ns: int, max_points: int) -> tuple[np.ndarray, int]:
        span = (end_ns - start_ns) / SECOND
        tier = next(tier for tier in (1, 10, 60, 3600) if span / tier <= max_points)
        step = tier * SECOND
        t_ns = np.arange(start_ns // step * step, end_ns, step, dtype=np.int64)
        if self.with_gap and len(t_ns) > 60:
            t_ns = np.delete(t_ns, slice(len(t_ns) // 2, len(t_ns) // 2 + len(t_ns) // 12))
        return (t_ns if self.measured else t_ns[:0]), tier

    def series(self, run_key, metrics, start_ns, end_ns, max_points=2000) -> Series:
        t_ns, tier = self.grid(start_ns, end_ns, max_points)
        seconds = t_ns / SECOND
        wave = 0.5 + 0.5 * np.sin(seconds / 47) * np.cos(seconds / 211)
        busy = np.clip(0.25 + 0.85 * wave, 0.05, 1.0)
        noise = np.abs(np.sin(seconds * 1.7))
        blocks = self.num_blocks
        active = np.floor(busy * blocks * 0.99)
        cached = np.floor((blocks - active) * 0.7)
        pressed = np.clip(busy - 0.8, 0, 1) * 30
        known = {
            "active_blocks": active,
            "active_blocks_max": active,
            "cached_blocks": cached,
            "free_blocks": blocks - active - cached,
            "total_blocks": np.full(len(t_ns), float(blocks)),
            "live_sequences": np.floor(busy * 40),
            "wait_pool_ns": pressed * SECOND * tier,
            "wait_scheduler_ns": noise * 0.6 * SECOND * tier,
            "arrived": np.floor(busy * 6 * tier),
            "rejected": np.floor(noise * 1.3) * tier,
            "preempted": (noise > 0.97).astype(float),
            "finished": np.floor(busy * 5 * tier),
            "active_block_ns": active * SECOND * tier,
            "events_stored": np.floor(busy * 900 * tier),
            "prefill_tokens": np.floor(busy * 900 * tier),
            "decode_tokens": np.floor(busy * 200 * tier),
            "steps": np.full(len(t_ns), 20.0 * tier),
            "admitted": np.floor(busy * 5 * tier),
            "compute_ns": np.full(len(t_ns), 0.6 * SECOND * tier),
            "running": np.floor(busy * 33),
            "waiting": np.full(len(t_ns), float(self.num_waiting)),
        }
        if self.shares:
            known |= {
                "logical_blocks": np.floor(active * (1.3 + 0.2 * wave)),
                "prefix_hit_tokens": np.floor(wave * 400 * tier),
                "prefix_queried_tokens": np.floor(busy * 1300 * tier),
                "resume_hit_tokens": np.floor((noise > 0.97) * 480.0),
                "tokens_lost": np.floor((noise > 0.97) * 700.0),
                "copied": np.floor(noise * 3 * tier),
                "forked": np.floor(noise * 2 * tier),
                "swapped_out": np.floor((noise > 0.95) * 22.0),
                "swapped_in": np.floor((noise < 0.05) * 22.0),
                "outlived_block_ns": active * SECOND * tier * 0.06,
            }
        else:
            known["logical_blocks"] = active
        zeros = np.zeros(len(t_ns))
        return Series(t_ns, {name: known.get(name, zeros) for name in metrics}, tier)

    def latencies(self, run_key, metric, start_ns, end_ns, max_points=2000) -> LatencySeries:
        t_ns, tier = self.grid(start_ns, end_ns, max_points)
        seconds = t_ns / SECOND
        base = {"ttft": 0.22, "inter_token": 0.028}.get(metric, 0.1)
        load = 1 + np.clip(np.sin(seconds / 47) * np.cos(seconds / 211), -0.5, 1)
        count = np.where(np.sin(seconds * 3.3) > -0.9, 5, 0).astype(np.int64)
        p50 = base * load
        p95 = p50 * (2.2 + np.sin(seconds * 1.3))
        p99 = p95 * 1.5
        return LatencySeries(t_ns, count, p50, p95, p99, p99 * 1.2, tier)

    def latency_summary(self, run_key, metric, start_ns, end_ns) -> LatencySummary | None:
        if not self.measured:
            return None
        if metric == "inter_token":
            return LatencySummary(9_200, 276.0, 0.02, 0.028, 0.064, 0.12, 0.3)
        return LatencySummary(1840, 900.0, 0.05, 0.241, 1.82, 3.4, 5.1)

    def labelled(self, run_key, family, start_ns, end_ns, max_points=2000) -> LabelledSeries:
        t_ns, tier = self.grid(start_ns, end_ns, max_points)
        seconds = t_ns / SECOND
        if family.startswith("tenant"):
            shares = {
                name: np.floor((40 + 30 * np.sin(seconds / 47 + number)) * 3.0 / (number + 1))
                for number, name in enumerate(self.tenant_names())
            }
            return LabelledSeries(t_ns, shares, tier)
        values = {
            "queue_full": np.floor(np.abs(np.sin(seconds * 1.7)) * 1.3) * tier,
            "context_too_long": (np.sin(seconds * 0.9) > 0.96) * float(tier),
            "exceeds_pool": (np.sin(seconds * 0.37) > 0.985) * float(tier),
        }
        return LabelledSeries(t_ns, values, tier)

    def tenant_names(self) -> list[str]:
        names = (self.tenant, "chat", "batch", "", *(f"tenant-{n}" for n in range(4, 20)))
        return list(names[: self.num_tenants])

    def tenants(self, run_key, start_ns, end_ns) -> list[TenantRow]:
        if not self.measured:
            return []
        return [
            TenantRow(
                tenant=name,
                num_sequences=60,
                num_requests=55,
                num_rejected=3 * number,
                num_at_quota=2 if number == 2 else 0,
                held_blocks=160 // (number + 1),
                prompt_tokens=81_000 // (number + 1),
                output_tokens=9_000 // (number + 1),
                block_seconds=42_000.5 / (number + 1),
                preemptions=number,
                prefix_hit_tokens=12_000,
                wait_pool_ns=41 * SECOND,
                wait_scheduler_ns=3 * SECOND,
                wait_quota_ns=17 * SECOND if number == 2 else 0,
                wait_transfer_ns=0,
                wait_after_preempt_ns=2 * SECOND,
            )
            for number, name in enumerate(self.tenant_names())
        ]

    def head_of_line(self, run_key) -> HeadOfLine | None:
        if not self.held_up:
            return None
        return HeadOfLine(131, 300, 44, 5, 3, 38, 9 * SECOND, 31 * SECOND)

    def block_map(self, run_key, at_ns=None):
        at = at_ns or self.now_ns
        return block_map_with_all_states(self.num_blocks, at, tenant=self.tenant)

    def requests(
        self, run_key, start_ns, end_ns, *, limit=500, state=None, tenant=None, order="started"
    ) -> list[RequestRow]:
        if not self.measured:
            return []
        rows = [
            request_row(owner, self.now_ns, self.request_states, tenant=self.tenant)
            for owner in range(160, 100, -1)
        ]
        return [row for row in rows if state is None or row.state is state][:limit]

    def request(self, run_key, owner) -> RequestRow | None:
        return request_row(owner, self.now_ns, self.request_states, tenant=self.tenant)

    def request_events(self, run_key, owner) -> list[RequestEvent]:
        t0 = self.now_ns - 40 * SECOND
        lines = (
            (0.0, "arrive", "prompt 812 tokens, at most 256"),
            (0.004, "wait", "pool_behind; blocked by 131"),
            (2.9, "wait", "pool; needs more than is free and cached"),
            (4.2, "admit", ""),
            (4.2, "prefix_hit", "256 of 812 tokens"),
            (5.0, "first_token", ""),
            (11.0, "preempt", "recompute, for 140; 190 tokens lost"),
            (11.0, "wait", "pool"),
            (14.5, "resume", "256 tokens found again"),
            (15.2, "first_token", "after a resume"),
            (24.0, "finish", "stop"),
        )
        causes = {"pool_behind; blocked by 131": "pool_behind"}
        return [
            RequestEvent(
                t0 + int(at * SECOND), kind, text,
                cause=causes.get(text, "pool") if kind == "wait" else None,
            )
            for at, kind, text in lines
        ]  # fmt: skip

    def marks(self, run_key, start_ns, end_ns) -> list[Mark]:
        middle = (start_ns + end_ns) // 2
        marks = [Mark(start_ns + (end_ns - start_ns) // 5, MarkKind.CONFIG, "max_batch 16 -> 24")]
        if self.with_gap:
            marks.append(Mark(middle, MarkKind.GAP, "412 events lost"))
        return marks

    def clock_steps(self, run_key, start_ns, end_ns) -> list[ClockStep]:
        return []

    def gaps(self, run_key) -> list[GapRow]:
        if not self.with_gap:
            return []
        start = self.now_ns - 420 * SECOND
        lost = {"allocate": 300, "free": 100, "step": 12}
        return [GapRow(90_000, 90_300, start, start + 60 * SECOND, "deleted", lost)]

    def totals(self, run_key) -> dict[str, KindTotal]:
        lost = 300 if self.with_gap else 0
        return {
            "allocate": KindTotal(481_220, lost),
            "free": KindTotal(480_911, lost // 3),
            "share": KindTotal(120_331, 0),
            "step": KindTotal(90_112, 12 if lost else 0),
            "arrive": KindTotal(5_310, 0),
            "finish": KindTotal(5_120, 0),
            "reject": KindTotal(170, 0),
        }

    def telemetry(self, run_key) -> TelemetryHealth:
        lost = 412 if self.with_gap else 0
        stored = 1_178_174 if self.measured else 0
        return TelemetryHealth(
            position=Position(3, 20_119, 402_776) if self.measured else None,
            last_commit_at_ns=self.now_ns - int(self.commit_age_seconds * SECOND),
            last_event_at_ns=self.now_ns,
            behind_records=12,
            stored=stored,
            lost=lost,
            share_ratio=stored / (stored + lost) if stored + lost else None,
            audits_passed=1802,
            audits_failed=self.audits_failed,
            last_audit_failure="active 310, the pool says 312" if self.audits_failed else None,
            unknown_records=0,
            num_chunks=118,
            chunk_bytes=2_830_112,
            store_bytes=9_100_288,
        )

    def broken_laws(self, run_key) -> list[BrokenLaw]:
        opened = self.now_ns - 80 * SECOND
        said = BrokenLaw("audit", opened, None, "active 312", "active 310", [7], 1, [121], 1)
        return [said] if self.audits_failed else []

    def gpus(self, start_ns, end_ns) -> GpuHistory:
        return GpuHistory(list(self.gpu_series), {"gpu-host": "NVML Shared Library Not Found"})

    def leaks(self, run_key) -> list[Leak]:
        since = self.now_ns - 90 * SECOND
        return [Leak(40 + number, 121, since, None) for number in range(self.num_leaks)]

    def incidents(self, wanted) -> list[IncidentRow]:
        return []

    def baselines(self) -> list[BaselineRow]:
        return []

    def close(self) -> None:
        """Nothing to close."""
