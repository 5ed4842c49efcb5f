"""Write incidents, on connections of their own beside the agent's commits.

An incident is told from every other one by its run, the verdict that opened it and since when. So
writing one a second time, after a commit whose answer was cut off, changes a row and adds none. One
that is closed stays closed, whoever comes later.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple, Self

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError, IntegrityError

from agent.errors import (
    IncidentConflict,
    IncidentNotFound,
    StoreUnwritable,
)
from agent.store.connection import StoreAddress, open_for_writing, why_unwritable
from agent.triage.codec import encode_diagnosis
from agent.triage.incidents import Incident, IncidentChange

MOST_INCIDENTS: Final = 20_000  # of a store; beyond it the oldest that are closed go
FEWER: Final = 1_000  # so many at a time
COLUMNS: Final = (
    *("engine", "run_key", "verdict", "opened_as", "opened_at_ns", "seen_at_ns", "updated_at_ns"),
    *("closed_at_ns", "close_reason", "confidence", "action", "summary", "peak_at_ns"),
    *("peak_impact", "opening", "evidence"),
)
IDENTITY: Final = ("run_key", "opened_as", "opened_at_ns")
FIXED: Final = (*IDENTITY, "engine", "opening")
WRITE: Final = text(
    f"INSERT INTO incidents ({', '.join(COLUMNS)})"
    f" VALUES ({', '.join(f':{name}' for name in COLUMNS)})"
    f" ON CONFLICT ({', '.join(IDENTITY)}) DO UPDATE SET "
    + ", ".join(f"{name}=excluded.{name}" for name in COLUMNS if name not in FIXED)
    + " WHERE incidents.closed_at_ns IS NULL RETURNING incident_key"
)


class Acknowledgement(NamedTuple):
    """Who has seen an incident, when, and what they said."""

    by: str
    at_ns: int
    note: str


class IncidentWriter:
    """Writes the incidents of one store; may be used from several threads."""

    def __init__(self, engine: Engine, address: StoreAddress) -> None:
        self._engine = engine
        self._address = address

    @classmethod
    def open(cls, address: StoreAddress) -> Self:
        """Open a store that exists and is up to date.

        Raises:
            StoreUnwritable: The database refused.
        """
        return cls(open_for_writing(address), address)

    def write(
        self, run_key: int, changes: Sequence[IncidentChange], *, now_ns: int
    ) -> list[IncidentChange]:
        """Store changes of one run in one transaction; return them with the keys of their rows.

        What closes an incident that somebody else closed before is left out.

        Raises:
            IncidentConflict: An incident of that verdict is open already; nothing was changed.
            StoreUnwritable: The database refused.
        """
        stored = []
        try:
            with self._engine.begin() as connection:
                for change in changes:
                    values = _values(change.incident, run_key, now_ns)
                    key = connection.execute(WRITE, values).scalar()
                    if key is not None:
                        incident = replace(change.incident, key=int(key))
                        stored.append(replace(change, incident=incident))
                _forget_oldest(connection)
        except IntegrityError as error:
            raise IncidentConflict(run_key) from error
        except DBAPIError as error:
            raise self._unwritable(error) from error
        return stored

    def acknowledge(self, key: int, said: Acknowledgement) -> None:
        """Note who has seen an incident; a later word replaces an earlier one.

        Raises:
            IncidentNotFound: There is none of that number.
            StoreUnwritable: The database refused.
        """
        query = text(
            "UPDATE incidents SET acknowledged_by=:by, acknowledged_at_ns=:at_ns,"
            " acknowledged_note=:note WHERE incident_key=:key"
        )
        try:
            with self._engine.begin() as connection:
                done = connection.execute(query, {**said._asdict(), "key": key})
        except DBAPIError as error:
            raise self._unwritable(error) from error
        if done.rowcount != 1:
            raise IncidentNotFound(key)

    def close(self) -> None:
        """Close every connection."""
        self._engine.dispose()

    def _unwritable(self, error: DBAPIError) -> StoreUnwritable:
        return StoreUnwritable(self._address.label, why_unwritable(self._address, error))


def _values(incident: Incident, run_key: int, now_ns: int) -> dict[str, object]:
    finding = incident.finding
    return {
        "engine": incident.engine,
        "run_key": run_key,
        "verdict": incident.verdict.value,
        "opened_as": incident.opened_as.value,
        "opened_at_ns": incident.opened_at_ns,
        "seen_at_ns": incident.seen_at_ns,
        "updated_at_ns": now_ns,
        "closed_at_ns": incident.closed_at_ns,
        "close_reason": None if incident.close_reason is None else incident.close_reason.value,
        "confidence": finding.confidence.value,
        "action": finding.action.value,
        "summary": finding.summary,
        "peak_at_ns": incident.peak_at_ns,
        "peak_impact": incident.peak_impact,
        "opening": encode_diagnosis(incident.opening),
        "evidence": encode_diagnosis(incident.diagnosis),
    }


def _forget_oldest(connection: Connection) -> None:
    number = connection.execute(text("SELECT COUNT(*) FROM incidents")).scalar_one()
    if number <= MOST_INCIDENTS:
        return
    query = text(
        "DELETE FROM incidents WHERE incident_key IN (SELECT incident_key FROM incidents"
        " WHERE closed_at_ns IS NOT NULL ORDER BY opened_at_ns, incident_key LIMIT :fewer)"
    )
    connection.execute(query, {"fewer": FEWER})
