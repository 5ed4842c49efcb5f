"""Incidents in words."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from agent.duration import duration_text
from agent.reads.incidents import IncidentRow, StoredIncident
from agent.triage.report import as_text

NS: Final = 1_000_000_000
MOST_SUMMARY: Final = 100


def list_lines(rows: Sequence[IncidentRow], now_ns: int) -> list[str]:
    """Say which incidents there are, one line each with its summary below.

    `now_ns` is the wall clock.
    """
    if not rows:
        return ["no incidents"]
    lines = []
    for row in rows:
        lines.append(f"{row.key:>5}  {row.verdict:22}{row.engine:20}  {_state(row, now_ns)}")
        lines.append(f"       {_short(row.summary)}{_seen_by(row)}")
    return lines


def incident_lines(stored: StoredIncident, now_ns: int) -> list[str]:
    """Say one incident: its life, then the newest diagnosis."""
    row = stored.row
    lines = [
        f"incident {row.key}: {row.verdict} of {row.engine}, run {row.run_id}",
        f"  state       {_state(row, now_ns)}",
        f"  first seen  {_utc(row.opened_at_ns)}",
        f"  last seen   {_utc(row.seen_at_ns)}",
        f"  worst       {_utc(row.peak_at_ns)}, {row.peak_impact:.1f} sequences held up",
    ]
    if row.opened_as != row.verdict:
        lines.append(f"  opened as   {row.opened_as}, before its cause was found")
    if row.acknowledged_at_ns is not None:
        note = f": {row.acknowledged_note}" if row.acknowledged_note else ""
        when = _utc(row.acknowledged_at_ns)
        lines.append(f"  acknowledged by {row.acknowledged_by} at {when}{note}")
    return [*lines, "", as_text(stored.diagnosis)]


def _state(row: IncidentRow, now_ns: int) -> str:
    lasted = duration_text(max(1.0, row.lasted_ns(now_ns) / NS))
    if row.closed_at_ns is None:
        return f"OPEN since {_utc(row.opened_at_ns)} ({lasted})"
    return f"closed {_utc(row.closed_at_ns)} after {lasted}: {row.close_reason}"


def _seen_by(row: IncidentRow) -> str:
    return "" if row.acknowledged_by is None else f" (acknowledged by {row.acknowledged_by})"


def _short(summary: str) -> str:
    return summary if len(summary) <= MOST_SUMMARY else summary[: MOST_SUMMARY - 1] + "…"


def _utc(at_ns: int) -> str:
    return datetime.fromtimestamp(at_ns / NS, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
