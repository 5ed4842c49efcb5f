"""Incidents as they are stored: which, since when, why, and who acknowledged them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, RowMapping, text

from agent.errors import IncidentDamaged, IncidentNotFound, StateError
from agent.triage.codec import decode_diagnosis
from agent.triage.incidents import CloseReason, Incident
from agent.triage.verdicts import Diagnosis, Finding, Verdict

MOST_ROWS: Final = 1_000
FIELDS: Final = (
    *("incident_key", "incidents.engine", "run_id", "incidents.run_key", "verdict", "opened_as"),
    *("opened_at_ns", "seen_at_ns", "updated_at_ns", "closed_at_ns", "close_reason", "confidence"),
    *("action", "summary", "peak_at_ns", "peak_impact"),
    *("acknowledged_by", "acknowledged_at_ns", "acknowledged_note"),
)
HEAD: Final = ", ".join(FIELDS)
FROM: Final = "FROM incidents JOIN runs ON runs.run_key=incidents.run_key"


@dataclass(frozen=True, slots=True)
class IncidentRow:
    """One condition of one engine, without its evidence.

    Attributes:
        verdict: Its cause as far as it is known, a value of `agent.triage.verdicts.Verdict`.
        opened_as: Its verdict when it was opened, before the cause was found.
        opened_at_ns: When it was first seen, on the engine's wall clock, as the times below.
        seen_at_ns: When it held last, as of `updated_at_ns`.
        updated_at_ns: When the row was written, on the agent's wall clock.
        closed_at_ns: When it held last; None: it is open.
        close_reason: A value of `agent.triage.incidents.CloseReason`; None: it is open.
        peak_at_ns: When it cost most.
        peak_impact: Sequences that it held up then, on average.
        acknowledged_at_ns: On the agent's wall clock; None: nobody acknowledged it.
    """

    key: int
    engine: str
    run_id: str
    run_key: int
    verdict: str
    opened_as: str
    opened_at_ns: int
    seen_at_ns: int
    updated_at_ns: int
    closed_at_ns: int | None
    close_reason: str | None
    confidence: str
    action: str
    summary: str
    peak_at_ns: int
    peak_impact: float
    acknowledged_by: str | None
    acknowledged_at_ns: int | None
    acknowledged_note: str | None

    @property
    def is_open(self) -> bool:
        """Whether it still holds, as far as anybody knows."""
        return self.closed_at_ns is None

    def lasted_ns(self, now_ns: int) -> int:
        """Return how long it held, or has held by now; `now_ns` is the wall clock.

        An engine's clock may be another one than the wall's: what has passed since the row was
        written is added to what it says.
        """
        if self.closed_at_ns is not None:
            return self.closed_at_ns - self.opened_at_ns
        return self.seen_at_ns - self.opened_at_ns + max(0, now_ns - self.updated_at_ns)


@dataclass(frozen=True, slots=True)
class StoredIncident:
    """An incident with its evidence.

    Attributes:
        opening: The diagnosis that opened it.
        diagnosis: The newest one that was stored.
    """

    row: IncidentRow
    opening: Diagnosis
    diagnosis: Diagnosis

    @property
    def finding(self) -> Finding:
        """What the newest diagnosis says of this incident."""
        findings = (self.diagnosis.headline, *self.diagnosis.contributing)
        ours = (each for each in findings if each.verdict == self.row.verdict)
        return next(ours, self.diagnosis.headline)

    @property
    def incident(self) -> Incident:
        """Return it as triage follows it."""
        row = self.row
        return Incident(
            engine=row.engine,
            run_id=row.run_id,
            verdict=Verdict(row.verdict),
            opened_as=Verdict(row.opened_as),
            opened_at_ns=row.opened_at_ns,
            seen_at_ns=row.seen_at_ns,
            opening=self.opening,
            diagnosis=self.diagnosis,
            finding=self.finding,
            peak_at_ns=row.peak_at_ns,
            peak_impact=row.peak_impact,
            closed_at_ns=row.closed_at_ns,
            close_reason=None if row.close_reason is None else CloseReason(row.close_reason),
            key=row.key,
        )


@dataclass(frozen=True, slots=True)
class IncidentFilter:
    """Which incidents are meant.

    Attributes:
        is_open: None: both open and closed ones.
        since_ns: Open after it, or closed after it; None: all.
        limit: At most so many, and never more than `MOST_ROWS`; the newest first.
    """

    engine: str | None = None
    run_key: int | None = None
    is_open: bool | None = None
    since_ns: int | None = None
    limit: int = 100


def read_incidents(connection: Connection, wanted: IncidentFilter) -> list[IncidentRow]:
    """Return incidents: the open ones first, then the newest first."""
    query, bind = _query(HEAD, wanted)
    return [_row(found) for found in connection.execute(text(query), bind).mappings()]


def read_open_incidents(connection: Connection, run_key: int | None) -> list[StoredIncident]:
    """Return the open incidents of a run, or of all, with their evidence.

    Raises:
        IncidentDamaged: Evidence cannot be read.
    """
    wanted = IncidentFilter(run_key=run_key, is_open=True, limit=MOST_ROWS)
    query, bind = _query(f"{HEAD}, opening, evidence", wanted)
    return [_stored(found) for found in connection.execute(text(query), bind).mappings()]


def read_incident(connection: Connection, key: int) -> StoredIncident:
    """Return one incident.

    Raises:
        IncidentNotFound: There is none of that number.
        IncidentDamaged: Its evidence cannot be read.
    """
    query = text(f"SELECT {HEAD}, opening, evidence {FROM} WHERE incident_key=:key")
    found = connection.execute(query, {"key": key}).mappings().first()
    if found is None:
        raise IncidentNotFound(key)
    return _stored(found)


class Untold(NamedTuple):
    """An incident of which somebody outside is still to be told."""

    stored: StoredIncident
    is_opening_told: bool


def read_untold(connection: Connection, since_ns: int) -> list[Untold]:
    """Return incidents written since then whose opening or closing was not told, oldest first.

    Raises:
        IncidentDamaged: Evidence cannot be read.
    """
    query = text(
        f"SELECT {HEAD}, opening, evidence, told_opened_at_ns {FROM}"
        " WHERE updated_at_ns>=:since_ns AND (told_opened_at_ns IS NULL OR"
        " (closed_at_ns IS NOT NULL AND told_closed_at_ns IS NULL))"
        " ORDER BY opened_at_ns, incident_key LIMIT :limit"
    )
    found = connection.execute(query, {"since_ns": since_ns, "limit": MOST_ROWS}).mappings()
    return [Untold(_stored(each), each["told_opened_at_ns"] is not None) for each in found]


def read_incident_counts(connection: Connection) -> dict[tuple[str, str], int]:
    """Return how many incidents are stored, by engine and the verdict that opened them."""
    query = text("SELECT engine, opened_as, COUNT(*) AS number FROM incidents GROUP BY 1, 2")
    return {(row.engine, row.opened_as): int(row.number) for row in connection.execute(query)}


def _query(fields: str, wanted: IncidentFilter) -> tuple[str, dict[str, Any]]:
    conditions = {
        "incidents.engine=:engine": wanted.engine is not None,
        "incidents.run_key=:run_key": wanted.run_key is not None,
        "closed_at_ns IS NULL": wanted.is_open is True,
        "closed_at_ns IS NOT NULL": wanted.is_open is False,
        "(closed_at_ns IS NULL OR closed_at_ns>=:since_ns)": wanted.since_ns is not None,
    }
    where = " AND ".join(text for text, holds in conditions.items() if holds) or "1=1"
    order = "CASE WHEN closed_at_ns IS NULL THEN 0 ELSE 1 END, opened_at_ns DESC, incident_key DESC"
    bind: Mapping[str, object] = {
        "engine": wanted.engine,
        "run_key": wanted.run_key,
        "since_ns": wanted.since_ns,
    }
    query = f"SELECT {fields} {FROM} WHERE {where} ORDER BY {order} LIMIT :limit"
    used = {name: value for name, value in bind.items() if value is not None}
    return query, {**used, "limit": max(1, min(wanted.limit, MOST_ROWS))}


def _row(found: RowMapping) -> IncidentRow:
    values = dict(found)
    key = values.pop("incident_key")
    values.pop("opening", None)
    values.pop("evidence", None)
    values.pop("told_opened_at_ns", None)
    return IncidentRow(key=key, **values)


def _stored(found: RowMapping) -> StoredIncident:
    try:
        opening, newest = decode_diagnosis(found["opening"]), decode_diagnosis(found["evidence"])
    except StateError as error:
        raise IncidentDamaged(found["incident_key"], str(error)) from error
    return StoredIncident(_row(found), opening, newest)
