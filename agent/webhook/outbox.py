"""What is still to be told, as the store knows it: so an incident is told at least once."""

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from agent.store.connection import StoreAddress
from agent.store.told import ToldIncidents
from agent.triage.incidents import IncidentChange


class Outbox(Protocol):
    """Remembers what was told. Its methods may raise an `AgentError`."""

    def untold(self) -> Sequence[IncidentChange]:
        """Return what nobody was told of yet, oldest first."""

    def note(self, change: IncidentChange) -> None:
        """Note that nothing more is to be done about a change."""

    def close(self) -> None:
        """Let go of what it holds."""


class NoOutbox:
    """Remembers nothing: what is not told before the end is not told."""

    def untold(self) -> Sequence[IncidentChange]:
        """Return nothing."""
        return ()

    def note(self, change: IncidentChange) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class StoreOutbox:
    """Remembers in the store, on a connection that it opens when it is first needed."""

    def __init__(self, address: StoreAddress, wall_ns: Callable[[], int] = time.time_ns) -> None:
        self._address = address
        self._wall_ns = wall_ns
        self._told: ToldIncidents | None = None

    def untold(self) -> Sequence[IncidentChange]:
        """Return what is still to be told of the last day."""
        return self._open().untold(self._wall_ns())

    def note(self, change: IncidentChange) -> None:
        """Note it in the incident's row."""
        self._open().note(change, self._wall_ns())

    def close(self) -> None:
        """Close the connection."""
        if self._told is not None:
            self._told.close()

    def _open(self) -> ToldIncidents:
        if self._told is None:
            self._told = ToldIncidents.open(self._address)
        return self._told
