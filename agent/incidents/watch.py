"""Judge every engine that the agent follows, again and again, and keep its incidents in the store.

It reads and writes on connections of its own: the loop that follows the engines knows nothing of
it. Whatever fails here is said once per cause and hour, and tried again at the next look. Listeners
hear of a change after it was stored; a listener that fails is said in the same way.
"""

import logging
import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final, Protocol

from agent.errors import AgentError, IncidentConflict, StoreUnwritable
from agent.incidents.board import EngineIncidents, IncidentBoard
from agent.incidents.leftovers import leftovers, unseen_deaths
from agent.incidents.run_watch import RunWatch
from agent.live_view import LiveEngine, LiveView
from agent.log_limit import OncePerHour
from agent.reads.incidents import MOST_ROWS, IncidentFilter
from agent.reads.models import RunState
from agent.reads.reads import Reads, open_reads
from agent.store.connection import parse_address
from agent.store.incidents import IncidentWriter
from agent.targets.target import Target
from agent.triage.incidents import Change, IncidentChange

LOGGER: Final = logging.getLogger(__name__)
OPEN: Final = IncidentFilter(is_open=True, limit=MOST_ROWS)
MOST_ENGINES: Final = 1_000  # names taken from the journal folder


class IncidentListener(Protocol):
    """Hears of incidents, each change once, after it was stored."""

    def __call__(self, change: IncidentChange) -> None:
        """Take a change in; the watch waits for it, so it hands on what takes long."""


class IncidentWatch:
    """See the module. For one thread; `look` raises nothing."""

    def __init__(
        self,
        store: str,
        view: LiveView,
        board: IncidentBoard,
        log_limit: OncePerHour,
        *,
        journal: Path,
        targets: Sequence[Target] = (),
        listeners: Sequence[IncidentListener] = (),
        wall_clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._store = store
        self._view = view
        self._board = board
        self._log_limit = log_limit
        self._journal = journal
        self._targets = tuple(targets)
        self._listeners = tuple(listeners)
        self._wall_clock = wall_clock
        self._reads: Reads | None = None
        self._writer: IncidentWriter | None = None
        self._runs: dict[str, RunWatch] = {}
        self._opened: dict[str, dict[str, int]] | None = None  # by engine and verdict; None: unread
        self._may_have_died = True  # engines, while no agent was there

    def look(self) -> None:
        """Judge every engine once."""
        self._try("engines that are gone", self._tend)
        for name, live in self._view.snapshot().engines.items():
            self._try(f"engine {name}", partial(self._watch, live))

    def close(self) -> None:
        """Close every connection."""
        with ExitStack() as stack:
            for part in (self._reads, self._writer):
                if part is not None:
                    stack.callback(part.close)
        self._reads = self._writer = None

    def _try(self, what: str, act: Callable[[], None]) -> None:
        try:
            act()
        except AgentError as error:
            if self._log_limit.is_due(f"watch {what}: {type(error).__name__}"):
                LOGGER.warning("incidents: %s could not be judged: %s", what, error)
        except Exception as error:
            if self._log_limit.is_due(f"watch {what}: {error!r}"):
                LOGGER.error("incidents: judging %s failed", what, exc_info=error)

    def _watch(self, live: LiveEngine) -> None:
        watch = self._runs.get(live.engine)
        is_another = watch is None or watch.run_key != live.run_key
        if watch is not None and watch.has_waiting and (is_another or watch.is_over):
            self._keep(live.engine, watch, watch.retry())
        if watch is None or is_another:
            stored = self._open().open_incidents(live.run_key)
            watch = RunWatch(live.run_key, [each.incident for each in stored], self._targets)
            self._runs[live.engine] = watch
            self._show(live, watch)
        if not watch.is_over:
            self._keep(live.engine, watch, watch.judge(self._open(), live, self._wall_clock()))
        self._show(live, watch)

    def _keep(self, engine: str, watch: RunWatch, changes: list[IncidentChange]) -> None:
        if not changes:
            return
        try:
            stored = self._open_writer().write(watch.run_key, changes, now_ns=self._wall_clock())
        except StoreUnwritable:
            watch.keep(changes)
            raise
        except IncidentConflict:
            del self._runs[engine]  # and read again what is open, at the next look
            raise
        watch.stored(stored)
        self._tell(stored)
        told = {change.incident.opened_at_ns for change in stored}
        if any(
            change.change is not Change.CLOSED and change.incident.opened_at_ns not in told
            for change in changes
        ):
            del self._runs[engine]  # somebody else closed it: the same

    def _tell(self, stored: Sequence[IncidentChange]) -> None:
        for change in stored:
            incident = change.incident
            if change.change is Change.OPENED:
                opened = self._counts().setdefault(incident.engine, {})
                opened[incident.opened_as] = opened.get(incident.opened_as, 0) + 1
            if change.change is not Change.UPDATED:
                LOGGER.warning(
                    "incident %s %s: %s: %s",
                    *(incident.key, change.change, incident.engine, incident.finding.summary),
                )
            for listener in self._listeners:
                self._try(f"listener {listener!r}", partial(listener, change))

    def _show(self, live: LiveEngine, watch: RunWatch) -> None:
        is_present = live.state is not RunState.FINISHED and watch.diagnosis is not None
        shown = EngineIncidents(
            watch.open_verdicts,
            dict(self._counts().get(live.engine, {})),
            watch.diagnosis.verdict.value if is_present and watch.diagnosis else None,
            self._wall_clock(),
        )
        self._board.publish(live.engine, shown)

    def _tend(self) -> None:
        """Close what nobody follows any more, and open what nobody saw."""
        reads, counts, now_ns = self._open(), self._counts(), self._wall_clock()
        followed = self._view.snapshot().engines.keys()
        ours = {*followed, *_names_in(self._journal)}
        judged = {watch.run_key for watch in self._runs.values() if not watch.is_over}
        left = [row for row in reads.incidents(OPEN) if row.run_key not in judged]
        found = leftovers(reads, left, ours, now_ns)
        if self._may_have_died:
            found += unseen_deaths(reads, ours - followed, now_ns)
        for run_key, changes in found:
            stored = self._open_writer().write(run_key, changes, now_ns=now_ns)
            for watch in self._runs.values():
                if watch.run_key == run_key:
                    watch.stored(stored)
            self._tell(stored)
        self._may_have_died = False
        if found:
            left = reads.incidents(OPEN)
        for engine in ours - followed:
            verdicts = frozenset(row.verdict for row in left if row.engine == engine)
            opened = dict(counts.get(engine, {}))
            if verdicts or opened:
                self._board.publish(engine, EngineIncidents(verdicts, opened))

    def _counts(self) -> dict[str, dict[str, int]]:
        if self._opened is None:
            found: dict[str, dict[str, int]] = {}
            for (engine, verdict), number in self._open().incident_counts().items():
                found.setdefault(engine, {})[verdict] = number
            self._opened = found
        return self._opened

    def _open(self) -> Reads:
        if self._reads is None:
            self._reads = open_reads(self._store)
        return self._reads

    def _open_writer(self) -> IncidentWriter:
        if self._writer is None:
            self._writer = IncidentWriter.open(parse_address(self._store))
        return self._writer


def _names_in(journal: Path) -> list[str]:
    """Return the names of engines whose journals lie in a folder; nothing in them is read."""
    try:
        with os.scandir(journal) as entries:
            return [entry.name for entry in islice(entries, MOST_ENGINES)]
    except OSError:
        return []
