"""What the metrics say of incidents: the watch writes it, a scrape on another thread reads it."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class EngineIncidents:
    """One engine's incidents.

    Attributes:
        open: Verdicts of those that are open now.
        opened: How many were ever opened, by the verdict that opened them.
        verdict: The cause that leads in the last diagnosis; None: there is none.
        judged_at_ns: When that was, on the agent's wall clock.
    """

    open: frozenset[str] = frozenset()
    opened: Mapping[str, int] = field(default_factory=dict)
    verdict: str | None = None
    judged_at_ns: int = 0


class IncidentBoard:
    """A cell holding every engine's `EngineIncidents`, swapped whole."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._engines: Mapping[str, EngineIncidents] = {}

    def engines(self) -> Mapping[str, EngineIncidents]:
        """Return the newest state by engine; it never changes afterwards."""
        return self._engines

    def publish(self, engine: str, incidents: EngineIncidents) -> None:
        """Show an engine's incidents as they are stored now."""
        with self._lock:
            self._engines = {**self._engines, engine: incidents}
