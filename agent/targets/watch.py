"""Look at every live engine's targets, again and again, on a connection of its own."""

import logging
from collections.abc import Sequence
from typing import Final

from agent.errors import StoreError
from agent.live_view import LiveEngine, LiveView
from agent.log_limit import OncePerHour
from agent.reads.models import RunState
from agent.reads.reads import Reads, open_reads
from agent.targets.measure import measure
from agent.targets.target import Target

LOGGER: Final = logging.getLogger(__name__)
LOOK_SECONDS: Final = 15.0


class TargetWatch:
    """Shows in the live view how engines do. For one thread; `look` raises nothing."""

    def __init__(
        self, store: str, view: LiveView, targets: Sequence[Target], log_limit: OncePerHour
    ) -> None:
        self._store = store
        self._view = view
        self._targets = tuple(targets)
        self._log_limit = log_limit
        self._reads: Reads | None = None

    def look(self) -> None:
        """Measure every engine that lives."""
        for engine in self._view.snapshot().engines.values():
            if engine.state is RunState.LIVE:
                self._look(engine)

    def close(self) -> None:
        """Close every connection."""
        if self._reads is not None:
            self._reads.close()
            self._reads = None

    def _look(self, engine: LiveEngine) -> None:
        try:
            if self._reads is None:
                self._reads = open_reads(self._store)
            end_ns = engine.last_event_at_ns or engine.started_at_ns
            found = measure(self._reads, engine.engine, self._targets, end_ns)
            self._view.note_targets(engine.engine, found)
        except StoreError as error:
            self._say("store", "targets cannot be measured now: %s", error)
        except Exception as error:  # noqa: BLE001 - what is wrong with one engine is not of the next
            self._say(engine.engine, "measuring targets failed: %r", error)

    def _say(self, cause: str, text: str, error: Exception) -> None:
        if self._log_limit.is_due(f"targets {cause} {type(error).__name__}"):
            LOGGER.warning(text, error)
