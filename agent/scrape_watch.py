"""Look at one metrics page again and again, store what it says, and say what is missing.

Meant for a thread of its own: a server may hang. It ticks each second to keep its leases, looks
when a look is due, and raises nothing: an engine that cannot be reached is a condition, no failure.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from agent.errors import AgentError, StoreConflict, StoreUnwritable, StreamHeld
from agent.ledger.delta import RunShape
from agent.live_view import LiveEngine, LiveView
from agent.log_limit import OncePerHour
from agent.reads.models import RunState
from agent.reads.reads import Reads, open_reads
from agent.scraped.address import PageAddress
from agent.scraped.errors import PageUnreachable, PageUnreadable
from agent.scraped.live import Shown, live_of
from agent.scraped.page_reader import PageReader
from agent.scraped.reading import Reading
from agent.scraped.target import ScrapeTarget
from agent.scraped_run import ScrapedRun
from agent.sources.http_page import fetch
from agent.store.holder import RENEW_SECONDS
from agent.store.store import Store

LOGGER: Final = logging.getLogger(__name__)
TICK_SECONDS: Final = 1.0
TIMEOUT_SECONDS: Final = 5.0
LONGEST_PAUSE: Final = 4  # looks' pauses, once looks keep failing
CONFLICT_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class ScrapeClocks:
    """Time, and how a page is fetched; a test brings its own."""

    wall_ns: Callable[[], int] = field(default=time.time_ns)
    seconds: Callable[[], float] = field(default=time.monotonic)
    fetch: Callable[[PageAddress], bytes] = field(
        default=partial(fetch, timeout_seconds=TIMEOUT_SECONDS)
    )


class ScrapeWatch:
    """Follows the engines of one page into one store. For one thread."""

    def __init__(
        self,
        target: ScrapeTarget,
        store: str,
        view: LiveView,
        *,
        seconds: float,
        clocks: ScrapeClocks | None = None,
    ) -> None:
        self._target = target
        self._where = store
        self._view = view
        self._pause = seconds
        self._clocks = clocks or ScrapeClocks()
        self._reader = PageReader(target.address, self._clocks.fetch)
        self._runs: dict[str, ScrapedRun] = {}
        self._store: Store | None = None
        self._reads: Reads | None = None
        self._log_limit = OncePerHour(self._clocks.seconds)
        self._lock = threading.Lock()
        self._next_look = 0.0
        self._next_renewal = 0.0
        self._failures = 0
        self._why_missed = ""
        # One clock for what is stored: steps of the wall clock shall not turn looks around.
        self._wall_offset_ns = self._clocks.wall_ns() - int(self._clocks.seconds() * 1e9)

    def tick(self) -> None:
        """Do what is due; raises nothing."""
        with self._lock:
            self._tick()

    def _tick(self) -> None:
        try:
            self._settle()
            if self._clocks.seconds() >= self._next_look:
                self._look()
            self._renew()
            self._view.clear_error(self._subject("store"))
        except StreamHeld as error:
            self._note("store", error)
            self._next_look = self._clocks.seconds()  # a lease is watched each second
        except StoreConflict as error:
            self._note("store", error)
            self._runs.clear()  # from where the other got to
            self._next_look = self._clocks.seconds() + CONFLICT_SECONDS
        except StoreUnwritable as error:
            self._note("store", error)
        except AgentError as error:
            self._note("page", error)
        except Exception as error:
            if self._log_limit.is_due(f"{type(error).__name__}"):
                LOGGER.error("scraping %s failed", self._target.name, exc_info=error)
            why = f"unexpected {type(error).__name__}; going on from the last look that is stored"
            self._view.note_error(self._subject("page"), why, self._clocks.wall_ns())
            self._runs.clear()

    def close(self) -> None:
        """Let another agent go on, and close the store.

        Where a look hangs, the process ends with it, and the lease passes on by that.
        """
        if not self._lock.acquire(blocking=False):
            return
        try:
            for run in self._runs.values():
                run.release()
        except AgentError as error:
            name = self._target.name
            LOGGER.warning("%s: the lease passes on once silent for long: %s", name, error)
        if self._store is not None:
            self._store.close()
        if self._reads is not None:
            self._reads.close()

    def _settle(self) -> None:
        for run in self._runs.values():
            if run.has_pending:
                run.settle()

    def _look(self) -> None:
        now = self._clocks.seconds()
        self._next_look = now + self._pause
        try:
            readings = self._reader.read(self._now_ns())
        except (PageUnreachable, PageUnreadable) as error:
            self._failures += 1
            self._why_missed = f"the metrics page did not answer: {error.why}"
            self._next_look = now + self._pause * min(LONGEST_PAUSE, self._failures)
            self._note("page", error)
            return
        for reading in readings:
            self._take(reading, several=len(readings) > 1)
        self._failures, self._why_missed = 0, ""
        self._view.clear_error(self._subject("page"))

    def _take(self, reading: Reading, *, several: bool) -> None:
        store, reads = self._opened()
        # Data-parallel engines share a page; the one of most pages needs no number.
        name = f"{self._target.name}-{reading.engine}" if several else self._target.name
        run = self._runs.get(name)
        if run is None:
            run = ScrapedRun(name, store, page=self._target.address.label, seconds=self._pause)
        began = self._clocks.seconds()
        run.take(reading, reads, self._why_missed)
        self._runs[name] = run
        self._show(run, reading, self._clocks.seconds() - began)

    def _opened(self) -> tuple[Store, Reads]:
        if self._store is None:
            self._store = Store.open(self._where, seconds=self._clocks.seconds)
        if self._reads is None:
            self._reads = open_reads(self._where)
        return self._store, self._reads

    def _show(self, run: ScrapedRun, reading: Reading, commit_seconds: float) -> None:
        writer = run.writer
        if writer is None or writer.run_key is None:
            return
        shape = RunShape(run.total_blocks or 0, 0, reading.stated.block_size or 1)
        committed_at_ns = self._clocks.wall_ns()
        self._view.publish(
            LiveEngine(
                engine=run.engine,
                run_id=writer.stream.run_id,
                run_key=writer.run_key,
                started_at_ns=run.started_at_ns,
                state=RunState.LIVE,
                fingerprint=run.fingerprint,
                live=live_of(reading, Shown(shape, config=run.fingerprint)),
                last_commit_at_ns=committed_at_ns,
                last_event_at_ns=reading.t_ns,
                lag_seconds=None,
                behind_records=0,
                scrape_seconds=self._pause,
            )
        )
        self._view.note_commit(committed_at_ns, seconds=commit_seconds)

    def _renew(self) -> None:
        now = self._clocks.seconds()
        if self._store is None or now < self._next_renewal:
            return
        self._next_renewal = now + RENEW_SECONDS
        self._store.renew([run.stream for run in self._runs.values() if run.stream is not None])

    def _now_ns(self) -> int:
        return self._wall_offset_ns + int(self._clocks.seconds() * 1e9)

    def _note(self, part: str, error: AgentError) -> None:
        if self._log_limit.is_due(str(error)):
            LOGGER.warning("%s: %s; trying on, said once an hour", self._target.name, error)
        self._view.note_error(self._subject(part), str(error), self._clocks.wall_ns())

    def _subject(self, part: str) -> str:
        return f"scrape {self._target.name}: {part}"
