"""Incidents as pages ask for them; they are acknowledged through the agent."""

from collections import Counter
from dataclasses import dataclass
from typing import Final

from agent.reads.incidents import MOST_ROWS, IncidentFilter, IncidentRow, StoredIncident
from agent.reads.reads import Reads

MOST_CLOSED: Final = 200


@dataclass(frozen=True, slots=True)
class IncidentData:
    """Asks one store for its incidents, of all engines."""

    reads: Reads

    def open(self, engine: str | None = None) -> list[IncidentRow]:
        """Return those that are open, the newest first."""
        return self.reads.incidents(IncidentFilter(engine=engine, is_open=True, limit=MOST_ROWS))

    def closed(self) -> list[IncidentRow]:
        """Return the newest of those that are over."""
        return self.reads.incidents(IncidentFilter(is_open=False, limit=MOST_CLOSED))

    def num_open(self) -> Counter[str]:
        """Return how many are open, by engine."""
        return Counter(row.engine for row in self.open())

    def one(self, key: int) -> StoredIncident:
        """Return one with its evidence.

        Raises:
            IncidentError: It is gone, or its evidence is damaged.
        """
        return self.reads.incident(key)
