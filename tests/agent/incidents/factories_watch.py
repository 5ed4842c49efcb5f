"""A recorded engine followed second by second, and the watch that judges it as an agent's would."""

import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from agent.drill.follow import FollowedRun, streams_of
from agent.incidents.board import EngineIncidents, IncidentBoard
from agent.incidents.watch import IncidentWatch
from agent.live_view import LiveView
from agent.log_limit import OncePerHour
from agent.reads.reads import Reads, open_reads
from agent.sources.journal import JournalFolder
from agent.store.store import Store
from agent.triage.incidents import IncidentChange
from engine.faults.spec import FaultSpec
from engine.simulation.trace_recording import WALL_START_NS, TraceRun, record_trace
from engine.simulation.workload import WorkloadShape, make_workload
from tests.agent.simulated_writer import CONFIG

EVERY_SECONDS = 10.0
ENGINE = CONFIG.engine


def record_faulty(
    journal: Path, fault: str, *, seconds: float = 160.0, seed: int = 7, speed: float | None = None
) -> None:
    """Record an engine with a fault: a request a second, for so much engine time.

    With `speed` the engine begins now, and lives so many seconds in each second.
    """
    shape = WorkloadShape(num_requests=int(seconds), scale=0.02, requests_per_second=1, seed=seed)
    record_trace(
        make_workload(shape, block_size=CONFIG.block_size),
        journal=journal,
        run=TraceRun(
            config=replace(CONFIG, max_queue=4_096),
            seconds=seconds,
            speed=speed,
            wall_start_ns=WALL_START_NS if speed is None else time.time_ns(),
            faults=(FaultSpec.parse(fault),),
        ),
    )


class WatchedEngine:
    """One recorded run, its store, and an agent's watch; `run_to` lets engine time pass."""

    def __init__(self, followed: FollowedRun, store: str, journal: Path) -> None:
        self.board = IncidentBoard()
        self.changes: list[IncidentChange] = []
        self.listener = self.changes.append
        self._followed = followed
        self._store, self._journal = store, journal
        self._view = LiveView(0)
        self._at = 0.0
        self.watch = self.start_watch()

    def start_watch(self) -> IncidentWatch:
        """Begin anew, as an agent does that knows nothing but its store."""
        clock = self._followed.clock
        self.watch = IncidentWatch(
            self._store,
            self._view,
            self.board,
            OncePerHour(clock.seconds),
            journal=self._journal,
            listeners=(lambda change: self.listener(change),),
            wall_clock=clock.wall_ns,
        )
        return self.watch

    @property
    def now_ns(self) -> int:
        """Return the newest event's wall time."""
        return self._followed.clock.wall_ns()

    @property
    def shown(self) -> EngineIncidents:
        """Return what the metrics say."""
        return self.board.engines()[ENGINE]

    def run_to(self, seconds: float, *, looks: bool = True) -> None:
        """Follow the engine up to a moment, judging it every ten seconds."""
        while self._at < seconds:
            self._at += EVERY_SECONDS
            self._followed.advance(self._at)
            live = self._followed.live()
            if live is not None:
                self._view.publish(live)
            if looks:
                self.watch.look()


@contextmanager
def watched_engine(folder: Path, store: str) -> Iterator[tuple[WatchedEngine, Reads]]:
    """Follow the one run in `folder/journal` into a store."""
    journal = folder / "journal"
    with ExitStack() as stack:
        opened = stack.enter_context(Store.open(store))
        reads = open_reads(store)
        stack.callback(reads.close)
        (found,) = streams_of(JournalFolder(journal))
        followed = FollowedRun(found, opened, reads)
        stack.callback(followed.close)
        watched = WatchedEngine(followed, store, journal)
        stack.callback(lambda: watched.watch.close())
        yield watched, reads


if __name__ == "__main__":
    where, what, lasting, pace = sys.argv[1:]
    record_faulty(Path(where), what, seconds=float(lasting), speed=float(pace))
