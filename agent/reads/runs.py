"""Engines and runs: who writes or wrote, since when, and what their pools look like now."""

import json
from typing import Final

from sqlalchemy import Connection, RowMapping, text

from agent.reads.models import EngineRow, RunRow, RunState

NOW: Final = (
    *("active_blocks", "cached_blocks", "free_blocks", "waiting", "running", "swapped"),
    *("host_active_blocks", "total_blocks"),  # the pool may have changed its size
)


def read_runs(connection: Connection, engine: str) -> list[RunRow]:
    """Return all runs of an engine, newest first."""
    query = text(
        "SELECT * FROM runs WHERE engine=:engine ORDER BY started_at_ns DESC, run_key DESC"
    )
    rows = connection.execute(query, {"engine": engine}).mappings()
    return [_run_row(row) for row in rows]


def read_run(connection: Connection, run_key: int) -> RunRow | None:
    """Return one run."""
    query = text("SELECT * FROM runs WHERE run_key=:key")
    row = connection.execute(query, {"key": run_key}).mappings().first()
    return None if row is None else _run_row(row)


def read_engines(connection: Connection) -> list[EngineRow]:
    """Return the newest run of every engine: a live one before a later start that has ended."""
    query = text(
        "SELECT * FROM runs ORDER BY engine, CASE state WHEN 'live' THEN 0 ELSE 1 END,"
        " started_at_ns DESC, run_key DESC"
    )
    newest: dict[str, RowMapping] = {}
    for row in connection.execute(query).mappings():
        newest.setdefault(row["engine"], row)
    return [_engine_row(connection, _run_row(row)) for row in newest.values()]


def _run_row(row: RowMapping) -> RunRow:
    return RunRow(
        engine=row["engine"],
        run_id=row["run_id"],
        run_key=row["run_key"],
        started_at_ns=row["started_at_ns"],
        ended_at_ns=row["ended_at_ns"],
        last_event_at_ns=row["last_event_at_ns"],
        state=RunState(row["state"]),
        fingerprint=json.loads(row["fingerprint"]),
        total_blocks=row["total_blocks"],
        host_blocks=row["host_blocks"],
        block_size=row["block_size"],
        num_gaps=row["num_gaps"],
        events_stored=row["events_stored"],
        events_lost=row["events_lost"],
        audits_passed=row["audits_passed"],
        audits_failed=row["audits_failed"],
    )


def _engine_row(connection: Connection, run: RunRow) -> EngineRow:
    query = text(
        f"SELECT {', '.join(NOW)} FROM rollups WHERE run_key=:key AND tier_seconds=1"
        " ORDER BY at_ns DESC LIMIT 1"
    )
    now = connection.execute(query, {"key": run.run_key}).mappings().first()
    values = {name: value for name, value in (now or {}).items() if value is not None}
    shared = {name: getattr(run, name) for name in RunRow.__slots__}
    return EngineRow(**{**shared, **values})
