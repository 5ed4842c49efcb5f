"""Read the facts of one engine and one window out of the store; decides nothing."""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from agent.head_of_line import needed_blocks
from agent.kv_groups import StatedGroups
from agent.reads.models import (
    RunRow,
    RunState,
    Series,
)
from agent.reads.reads import Reads
from agent.scraped.fingerprint import is_scraped, scrape_seconds
from agent.targets.measure import measure
from agent.targets.target import Target
from agent.triage.facts import (
    BookFacts,
    BrokenLaw,
    Facts,
    PoolFacts,
    QueueFacts,
    Resize,
    RunFacts,
    StepFacts,
    TelemetryFacts,
    TrafficFacts,
)
from agent.triage.gather_scraped import gather_scraped
from agent.triage.lasting import gather_lasting, waits_by_cause
from agent.triage.past import GatheredPast, Stretch, gather_past, tenant_shares
from agent.triage.step_cost import StepWork, expected_seconds, step_work
from agent.triage.stillness import seconds_stuck, seconds_without_step
from agent.triage.thresholds import Thresholds

NS: Final = 1_000_000_000
ALL_POINTS: Final = 10_000  # so that the tier of one second is read
MEMORY_SECONDS: Final = 300.0
COLUMNS: Final = (
    *("active_blocks", "cached_blocks", "free_blocks", "total_blocks", "running", "waiting"),
    *("live_sequences", "steps", "compute_ns", "prefill_tokens", "decode_tokens"),
    *("recomputed_tokens", "preempted", "admitted", "resumed", "arrived", "finished", "cancelled"),
    *("events_stored", "events_lost", "filled_slots", "logical_blocks"),
)
# What rules ask for: to read one costs a millisecond of the agent.
JUDGED_LATENCIES: Final = ("ttft", "inter_token", "frontend", "pool_wait", "scheduler_wait")
MAX_BATCH_NAMES: Final = ("max_batch", "max_num_seqs", "max_running_requests")


@dataclass(frozen=True, slots=True)
class Question:
    """Which engine, which time, and what is known beside the store.

    Attributes:
        end_ns: None: up to the newest event.
        now_ns: The agent's wall clock, which commits are dated by; None: it is not to matter, as
            for a moment of the past.
        lasting_seconds: How far to look back for what lasts.
        apart: Stretches that are no example of health, such as incidents.
        past: What the window is held against; None: read the time before it.
        targets: How fast users are to be served, of all engines.
    """

    run: RunRow
    seconds: float = 60.0
    lasting_seconds: float = Thresholds().lasting_seconds
    past_seconds: float = 1_800.0
    end_ns: int | None = None
    now_ns: int | None = None
    apart: tuple[Stretch, ...] = ()
    past: GatheredPast | None = None
    targets: tuple[Target, ...] = ()


def gather(reads: Reads, question: Question) -> Facts:
    """Return the facts; what the store does not hold is missing with its reason."""
    run = question.run
    newest_ns = run.last_event_at_ns or run.started_at_ns
    end_ns = newest_ns if question.end_ns is None else min(question.end_ns, newest_ns)
    start_ns = max(end_ns - int(question.seconds * NS), run.started_at_ns)
    window = Stretch(start_ns, max(end_ns, start_ns + 1))
    is_now = question.end_ns is None
    missing: dict[str, str] = {}
    rows = _rows(reads, run, window)
    telemetry = _telemetry(reads, question, window, rows)
    known_from_ns = max([window.start_ns, *(gap.end_ns for gap in telemetry.gaps)])
    past = question.past or gather_past(
        reads, run, before_ns=start_ns, seconds=question.past_seconds, apart=question.apart
    )
    if is_scraped(run.fingerprint):
        facts = gather_scraped(reads, run, window, past, telemetry)
        if facts is not None:
            targets = measure(reads, run.engine, question.targets, window.end_ns)
            return replace(facts, targets=targets)
    if past.facts is None:
        missing["past"] = past.why_missing
    if rows is None:
        missing["rollups"] = "nothing is stored of this window"
    return Facts(
        start_ns=window.start_ns,
        end_ns=window.end_ns,
        run=RunFacts(
            run.engine, run.run_id, run.run_key, run.state, run.started_at_ns, run.last_event_at_ns
        ),
        pool=_pool(reads, run, rows, window.end_ns),
        queue=_queue(reads, run, rows, known_from_ns, is_now=is_now),
        steps=_steps(rows, past.work, known_from_ns, window, run.block_size),
        traffic=_traffic(reads, run, rows, window),
        books=_books(reads, run, window.end_ns),
        telemetry=telemetry,
        waits=waits_by_cause(reads, run, window),
        lasting=gather_lasting(reads, run, window.end_ns, question.lasting_seconds),
        latencies={
            name: summary
            for name in JUDGED_LATENCIES
            if (summary := reads.latency_summary(run.run_key, name, *window)) is not None
        },
        tenants=tenant_shares(reads, run, window, past.shares),
        past=past.facts,
        targets=measure(reads, run.engine, question.targets, window.end_ns),
        missing=missing,
    )


def _rows(reads: Reads, run: RunRow, window: Stretch) -> Series | None:
    series = reads.series(run.run_key, COLUMNS, *window, max_points=ALL_POINTS)
    return series if len(series.t_ns) else None


def _last(series: Series, name: str) -> int:
    """Return a gauge's last told value; 0 where it never was."""
    told = series.values[name][~np.isnan(series.values[name])]
    return int(told[-1]) if len(told) else 0


def _sum(series: Series, name: str) -> int:
    return int(np.nansum(series.values[name]))


def _pool(reads: Reads, run: RunRow, rows: Series | None, end_ns: int) -> PoolFacts | None:
    if rows is None or np.isnan(rows.values["active_blocks"]).all():
        return None
    total = _last(rows, "total_blocks") or run.total_blocks
    totals = rows.values["total_blocks"]
    ratio = (totals - rows.values["active_blocks"]) / np.maximum(totals, 1)
    return PoolFacts(
        total=total,
        first_total=run.total_blocks,
        active=_last(rows, "active_blocks"),
        cached=_last(rows, "cached_blocks"),
        free=_last(rows, "free_blocks"),
        available_ratio=float(np.nanmean(ratio)),
        resizes=_resizes(reads, run, end_ns) if total != run.total_blocks else (),
    )


def _resizes(reads: Reads, run: RunRow, end_ns: int) -> tuple[Resize, ...]:
    series = reads.series(run.run_key, ("total_blocks",), run.started_at_ns, end_ns)
    told = ~np.isnan(series.values["total_blocks"])
    totals = [run.total_blocks, *series.values["total_blocks"][told].astype(int).tolist()]
    times = series.t_ns[told].tolist()
    return tuple(
        Resize(at_ns, before, after)
        for at_ns, before, after in zip(times, totals, totals[1:], strict=False)
        if before != after
    )


def _queue(
    reads: Reads, run: RunRow, rows: Series | None, known_from_ns: int, *, is_now: bool
) -> QueueFacts | None:
    if rows is None:
        return None
    stuck = seconds_stuck(
        rows.t_ns,
        waiting=rows.values["waiting"],
        let_in=rows.values["admitted"] + rows.values["resumed"],
        known_from_ns=known_from_ns,
    )
    end_ns = int(rows.t_ns[-1]) + NS
    stuck_by_cause: dict[str, float] = {}
    if stuck:
        stuck_by_cause = waits_by_cause(reads, run, Stretch(end_ns - int(stuck * NS), end_ns))
    # Rows of live sequences say what is so now, and nothing of another moment.
    needs = _needs(reads, run) if is_now and _last(rows, "waiting") else []
    most = max(needs, default=(None, None))
    return QueueFacts(
        waiting=_last(rows, "waiting"),
        running=_last(rows, "running"),
        live=_last(rows, "live_sequences"),
        max_batch=_max_batch(run),
        stuck_seconds=stuck,
        stuck_by_cause=stuck_by_cause,
        least_needed=min(needs)[0] if needs else None,
        most_needed=most[0],
        most_needed_by=most[1],
        head=reads.head_of_line(run.run_key) if needs else None,
    )


def _needs(reads: Reads, run: RunRow) -> list[tuple[int, int]]:
    """Return what each waiting sequence needs, with its number."""
    groups = StatedGroups.read(run.fingerprint)
    found = [
        (needed_blocks(row.needed_blocks, row.prompt_tokens, run.block_size, groups), row.owner)
        for row in reads.waiting(run.run_key)
    ]
    return [(need, owner) for need, owner in found if need is not None]


def _max_batch(run: RunRow) -> int | None:
    stated = [run.fingerprint.get(name) for name in MAX_BATCH_NAMES]
    return next((value for value in stated if isinstance(value, int)), None)


def _steps(
    rows: Series | None, past: StepWork, known_from_ns: int, window: Stretch, block_size: int
) -> StepFacts | None:
    if rows is None:
        return None
    values = rows.values
    now = step_work(values, block_size)
    expected = expected_seconds(past, now)
    return StepFacts(
        num_steps=_sum(rows, "steps"),
        compute_seconds=_sum(rows, "compute_ns") / NS,
        prefill_tokens=_sum(rows, "prefill_tokens"),
        decode_tokens=_sum(rows, "decode_tokens"),
        recomputed_tokens=_sum(rows, "recomputed_tokens"),
        preempted=_sum(rows, "preempted"),
        since_step_seconds=seconds_without_step(
            rows.t_ns,
            steps=values["steps"],
            live=values["live_sequences"],
            known_from_ns=known_from_ns,
            end_ns=window.end_ns,
        ),
        slow_ratio=float(now.compute_seconds.sum()) / expected if expected else None,
        expected_seconds=expected,
    )


def _traffic(
    reads: Reads, run: RunRow, rows: Series | None, window: Stretch
) -> TrafficFacts | None:
    if rows is None:
        return None
    rejected = reads.labelled(run.run_key, "rejected", *window, max_points=ALL_POINTS)
    return TrafficFacts(
        arrived=_sum(rows, "arrived"),
        admitted=_sum(rows, "admitted"),
        finished=_sum(rows, "finished"),
        cancelled=_sum(rows, "cancelled"),
        rejected={reason: int(values.sum()) for reason, values in rejected.values.items()},
        mean_prompt_tokens=reads.mean_prompt_tokens(run.run_key, *window),
    )


def _books(reads: Reads, run: RunRow, end_ns: int) -> BookFacts:
    start_ns = end_ns - int(MEMORY_SECONDS * NS)
    refused = reads.series(run.run_key, ("refused_frees",), start_ns, end_ns)
    leaks = [leak for leak in reads.leaks(run.run_key) if leak.since_ns <= end_ns]
    return BookFacts(
        memory_seconds=MEMORY_SECONDS,
        leaks=tuple(x for x in leaks if x.ended_at_ns is None or x.ended_at_ns > end_ns),
        refused_frees=_sum(refused, "refused_frees"),
        broken_laws=_broken_laws(reads, run, Stretch(start_ns, end_ns)),
    )


def _broken_laws(reads: Reads, run: RunRow, memory: Stretch) -> tuple[BrokenLaw, ...]:
    """Return what is broken at the end of a stretch, or was within it, oldest first.

    One that stays broken counts for as long, whenever that began: it is one condition.
    """
    found = [
        BrokenLaw(law.opened_at_ns, law.sentence)
        for law in reads.broken_laws(run.run_key)
        if law.opened_at_ns <= memory.end_ns
        and (law.closed_at_ns is None or law.closed_at_ns >= memory.start_ns)
    ]
    return tuple(sorted(found, key=lambda law: law.at_ns))


def _telemetry(
    reads: Reads, question: Question, window: Stretch, rows: Series | None
) -> TelemetryFacts:
    run = question.run
    gaps = tuple(
        gap
        for gap in reads.gaps(run.run_key)
        if gap.start_ns < window.end_ns and gap.end_ns >= window.start_ns
    )
    age = agent_age = None
    if run.state is RunState.LIVE and question.now_ns is not None:
        health = reads.telemetry(run.run_key)
        age = _age_seconds(health.last_commit_at_ns, question.now_ns)
        agent_age = _age_seconds(health.agent_seen_at_ns, question.now_ns)
    return TelemetryFacts(
        stored_events=0 if rows is None else _sum(rows, "events_stored"),
        lost_events=sum(sum(gap.lost.values()) for gap in gaps),
        gaps=gaps,
        clock_steps=tuple(reads.clock_steps(run.run_key, window.start_ns, window.end_ns + 1)),
        commit_age_seconds=age,
        interval_seconds=scrape_seconds(run.fingerprint),
        is_asked=is_scraped(run.fingerprint),
        agent_age_seconds=agent_age,
    )


def _age_seconds(then_ns: int | None, now_ns: int) -> float | None:
    return None if then_ns is None else max(0.0, (now_ns - then_ns) / NS)
