"""What happened to a run's telemetry: marks, gaps, leaks, totals, and how fresh the store is."""

import json
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
from sqlalchemy import Connection, text

from agent.pool_usage import leaker_words
from agent.reads.broken_laws import read_broken_laws
from agent.reads.models import (
    ClockStep,
    GapRow,
    KindTotal,
    Leak,
    Mark,
    MarkKind,
    Position,
    TelemetryHealth,
)
from agent.reads.series import read_series
from agent.reads.tiers import Window
from agent.store.rows import kind_name


def read_gaps(connection: Connection, run_key: int) -> list[GapRow]:
    """Return the stretches known to be missing, oldest first."""
    query = text("SELECT * FROM gaps WHERE run_key=:key ORDER BY seq0, seq1")
    return [
        GapRow(
            seq0=row.seq0,
            seq1=row.seq1,
            start_ns=row.start_at_ns,
            end_ns=row.end_at_ns,
            why=row.why,
            lost=json.loads(row.lost),
        )
        for row in connection.execute(query, {"key": run_key})
    ]


def read_clock_steps(connection: Connection, run_key: int, window: Window) -> list[ClockStep]:
    """Return the steps of the engine's wall clock in a window, the oldest first."""
    query = text(
        "SELECT at_ns, step_ns FROM clock_steps WHERE run_key=:key AND at_ns>=:start AND at_ns<:end"
        " ORDER BY at_ns"
    )
    bind = {"key": run_key, "start": window.start_ns, "end": window.end_ns}
    return [ClockStep(row.at_ns, row.step_ns) for row in connection.execute(query, bind)]


def read_totals(connection: Connection, run_key: int) -> dict[str, KindTotal]:
    """Return events stored and lost per kind."""
    query = text("SELECT kind, stored, lost FROM kind_totals WHERE run_key=:key ORDER BY kind")
    rows = connection.execute(query, {"key": run_key})
    return {kind_name(row.kind): KindTotal(row.stored, row.lost) for row in rows}


def read_leaks(connection: Connection, run_key: int) -> list[Leak]:
    """Return blocks that outlived their owner, open ones first."""
    query = text(
        "SELECT * FROM leaks WHERE run_key=:key ORDER BY CASE WHEN ended_at_ns IS NULL THEN 0"
        " ELSE 1 END, since_at_ns, block"
    )
    return [
        Leak(row.block, row.owner, row.since_at_ns, row.ended_at_ns)
        for row in connection.execute(query, {"key": run_key})
    ]


def read_telemetry(connection: Connection, run_key: int) -> TelemetryHealth:
    """Return how much of the stream has arrived and how fresh that is."""
    key = {"key": run_key}
    run = connection.execute(text("SELECT * FROM runs WHERE run_key=:key"), key).mappings().first()
    place = (
        connection.execute(text("SELECT * FROM positions WHERE run_key=:key"), key)
        .mappings()
        .first()
    )
    laws = read_broken_laws(connection, run_key)
    newest = max(laws, key=lambda broken: broken.opened_at_ns, default=None)
    found: dict[str, Any] = dict(run) if run else {}
    stored, lost = found.get("events_stored", 0), found.get("events_lost", 0)
    return TelemetryHealth(
        position=Position(place["segment"], place["record"], place["seq"]) if place else None,
        last_commit_at_ns=found.get("last_commit_at_ns"),
        last_event_at_ns=found.get("last_event_at_ns"),
        agent_seen_at_ns=_agent_seen_at_ns(connection, key),
        behind_records=place["behind_records"] if place else None,
        stored=stored,
        lost=lost,
        share_ratio=stored / (stored + lost) if stored + lost else None,
        audits_passed=found.get("audits_passed", 0),
        audits_failed=found.get("audits_failed", 0),
        last_audit_failure=None if newest is None else newest.sentence,
        unknown_records=place["unknown_records"] if place else 0,
        num_chunks=found.get("num_chunks", 0),
        chunk_bytes=found.get("chunk_bytes", 0),
        store_bytes=_store_bytes(connection),
    )


def _agent_seen_at_ns(connection: Connection, key: Mapping[str, int]) -> int | None:
    query = text(
        "SELECT renewed_at_ns FROM leases JOIN runs ON runs.engine=leases.engine"
        " AND runs.run_id=leases.run_id WHERE run_key=:key"
    )
    found = connection.execute(query, key).scalar()
    return None if found is None else int(found)


def read_hash_bytes(connection: Connection, run_key: int) -> int:
    """Return the bytes of a run's chunks that hold content hashes."""
    query = text("SELECT COALESCE(SUM(hash_bytes), 0) FROM chunks WHERE run_key=:key")
    return int(connection.execute(query, {"key": run_key}).scalar_one())


def read_marks(connection: Connection, run_key: int, window: Window) -> list[Mark]:
    """Return what to mark on a time chart of this run, in time order."""
    bind = {"key": run_key, "start": window.start_ns, "end": window.end_ns}
    marks = [
        *_restarts(connection, bind),
        *_configs(connection, bind),
        *_gap_marks(connection, bind),
        *_leak_marks(connection, bind),
        *_law_marks(connection, run_key, window),
        *_pool_marks(connection, run_key, window),
        *_clock_marks(connection, run_key, window),
        *_incident_marks(connection, bind),
    ]
    return sorted(marks, key=lambda mark: mark.t_ns)


Bind = Mapping[str, int]


def _restarts(connection: Connection, bind: Bind) -> list[Mark]:
    query = text(
        "SELECT run_id, started_at_ns FROM runs WHERE engine=(SELECT engine FROM runs"
        " WHERE run_key=:key) AND started_at_ns>=:start AND started_at_ns<:end"
    )
    return [
        Mark(row.started_at_ns, MarkKind.RESTART, f"run {row.run_id} started")
        for row in connection.execute(query, bind)
    ]


def _configs(connection: Connection, bind: Bind) -> list[Mark]:
    query = text(
        "SELECT at_ns, fingerprint FROM configs WHERE run_key=:key AND at_ns<:end ORDER BY at_ns"
    )
    marks: list[Mark] = []
    before: dict[str, object] | None = None
    for row in connection.execute(query, bind):
        now = json.loads(row.fingerprint)
        if before is not None and now != before and row.at_ns >= bind["start"]:
            marks.append(Mark(row.at_ns, MarkKind.CONFIG, _difference(before, now)))
        before = now
    return marks


def _difference(before: dict[str, object], now: dict[str, object]) -> str:
    names = sorted(name for name in {*before, *now} if before.get(name) != now.get(name))
    return ", ".join(f"{name} {before.get(name)} → {now.get(name)}" for name in names)


def _gap_marks(connection: Connection, bind: Bind) -> list[Mark]:
    query = text(
        "SELECT start_at_ns, why, lost FROM gaps WHERE run_key=:key AND start_at_ns<:end"
        " AND end_at_ns>=:start"
    )
    marks = []
    for row in connection.execute(query, bind):
        lost = sum(json.loads(row.lost).values())
        at_ns = max(row.start_at_ns, bind["start"])
        marks.append(Mark(at_ns, MarkKind.GAP, f"{lost} events lost: {row.why}"))
    return marks


def _leak_marks(connection: Connection, bind: Bind) -> list[Mark]:
    query = text(
        "SELECT since_at_ns, owner, COUNT(*) AS blocks FROM leaks WHERE run_key=:key"
        " AND since_at_ns>=:start AND since_at_ns<:end GROUP BY since_at_ns, owner"
    )
    return [
        Mark(
            row.since_at_ns,
            MarkKind.LEAK,
            f"{row.blocks} blocks of {leaker_words(row.owner)} leaked",
        )
        for row in connection.execute(query, bind)
    ]


def _law_marks(connection: Connection, run_key: int, window: Window) -> list[Mark]:
    return [
        Mark(broken.opened_at_ns, MarkKind.AUDIT_FAILED, broken.sentence)
        for broken in read_broken_laws(connection, run_key)
        if window.start_ns <= broken.opened_at_ns < window.end_ns
    ]


def _pool_marks(connection: Connection, run_key: int, window: Window) -> list[Mark]:
    series = read_series(connection, run_key, ("total_blocks",), window)
    total = series.values["total_blocks"]
    told = np.flatnonzero(~np.isnan(total))
    marks = []
    for before, now in pairwise(told.tolist()):
        if total[before] != total[now]:
            said = f"pool went from {int(total[before])} to {int(total[now])} blocks"
            marks.append(Mark(int(series.t_ns[now]), MarkKind.POOL, said))
    return marks


def _clock_marks(connection: Connection, run_key: int, window: Window) -> list[Mark]:
    return [
        Mark(step.t_ns, MarkKind.CLOCK_STEP, step.sentence)
        for step in read_clock_steps(connection, run_key, window)
    ]


def _incident_marks(connection: Connection, bind: Bind) -> list[Mark]:
    query = text(
        "SELECT incident_key, verdict, summary, opened_at_ns FROM incidents"
        " WHERE run_key=:key AND opened_at_ns>=:start AND opened_at_ns<:end"
    )
    return [
        Mark(
            row.opened_at_ns,
            MarkKind.INCIDENT,
            f"incident {row.incident_key}, {row.verdict}: {row.summary}",
        )
        for row in connection.execute(query, bind)
    ]


def _store_bytes(connection: Connection) -> int:
    if connection.dialect.name == "postgresql":
        query = "SELECT pg_database_size(current_database())"
        return int(connection.execute(text(query)).scalar_one())
    pages = connection.execute(text("PRAGMA page_count")).scalar_one()
    return int(pages) * int(connection.execute(text("PRAGMA page_size")).scalar_one())
