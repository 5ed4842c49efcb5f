"""Which ends of incidents somebody outside was told of: an agent goes on where one stopped."""

from dataclasses import replace
from typing import Final, Self

from sqlalchemy import Engine, text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from agent.errors import StoreUnreadable, StoreUnwritable
from agent.reads.incidents import StoredIncident, read_untold
from agent.store.connection import StoreAddress, first_line, open_for_writing, why_unwritable
from agent.triage.incidents import Change, Incident, IncidentChange

NS: Final = 1_000_000_000
LATEST_SECONDS: Final = 86_400.0  # what nobody was told of for so long is told to nobody
COLUMNS: Final = {Change.OPENED: "told_opened_at_ns", Change.CLOSED: "told_closed_at_ns"}


class ToldIncidents:
    """The two columns of `incidents` that say so; may be used from several threads."""

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

    def untold(self, now_ns: int) -> list[IncidentChange]:
        """Return what is still to be told of the last day, oldest first.

        Raises:
            StoreUnreadable: The database refused.
            IncidentDamaged: Evidence cannot be read.
        """
        since_ns = now_ns - int(LATEST_SECONDS * NS)
        try:
            with self._engine.connect() as connection:
                found = read_untold(connection, since_ns)
        except SQLAlchemyError as error:
            raise StoreUnreadable(self._address.label, first_line(error)) from error
        return [change for each in found for change in _changes(each.stored, each.is_opening_told)]

    def note(self, change: IncidentChange, now_ns: int) -> None:
        """Note that an end was told, or that the receiver will not have it.

        Raises:
            StoreUnwritable: The database refused.
        """
        column = COLUMNS[change.change]
        query = text(f"UPDATE incidents SET {column}=:now_ns WHERE incident_key=:key")
        try:
            with self._engine.begin() as connection:
                connection.execute(query, {"now_ns": now_ns, "key": change.incident.key})
        except DBAPIError as error:
            why = why_unwritable(self._address, error)
            raise StoreUnwritable(self._address.label, why) from error

    def close(self) -> None:
        """Close every connection."""
        self._engine.dispose()


def _changes(stored: StoredIncident, is_opening_told: bool) -> list[IncidentChange]:
    incident = stored.incident
    opened = [] if is_opening_told else [IncidentChange(Change.OPENED, _at_first(incident))]
    closed = [] if stored.row.is_open else [IncidentChange(Change.CLOSED, incident)]
    return [*opened, *closed]


def _at_first(incident: Incident) -> Incident:
    """Return an incident as it was when it was opened."""
    opening = incident.opening
    findings = (opening.headline, *opening.contributing)
    ours = (each for each in findings if each.verdict is incident.opened_as)
    return replace(
        incident,
        verdict=incident.opened_as,
        diagnosis=opening,
        finding=next(ours, opening.headline),
        closed_at_ns=None,
        close_reason=None,
    )
