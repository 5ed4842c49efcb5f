"""The part of the reading side that tells of incidents."""

from agent.reads import incidents as reads_incidents
from agent.reads.connected import Connected
from agent.reads.incidents import IncidentFilter, IncidentRow, StoredIncident


class IncidentReads(Connected):
    """Answers questions about the incidents of one store."""

    def incidents(self, wanted: IncidentFilter | None = None) -> list[IncidentRow]:
        """Return incidents without their evidence: the open ones first, then the newest first."""
        with self._connection() as connection:
            return reads_incidents.read_incidents(connection, wanted or IncidentFilter())

    def open_incidents(self, run_key: int | None = None) -> list[StoredIncident]:
        """Return the open incidents of a run, or of all runs, with their evidence."""
        with self._connection() as connection:
            return reads_incidents.read_open_incidents(connection, run_key)

    def incident(self, key: int) -> StoredIncident:
        """Return one incident with its evidence; `IncidentNotFound` if there is none."""
        with self._connection() as connection:
            return reads_incidents.read_incident(connection, key)

    def incident_counts(self) -> dict[tuple[str, str], int]:
        """Return how many incidents are stored by engine and the verdict that opened them."""
        with self._connection() as connection:
            return reads_incidents.read_incident_counts(connection)
