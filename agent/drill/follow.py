"""Follow a recorded run as the agent would have while it happened, and judge it as it goes.

Time is the engine's: the journal is read up to a moment, committed, and judged with what the store
then holds.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from agent.live_view import LiveEngine
from agent.reads.models import RunRow, RunState
from agent.reads.reads import Reads
from agent.sources.journal import FoundStream, JournalFolder
from agent.store.store import Store
from agent.stream_follower import Clocks, StreamFollower
from agent.triage.doctor import examine
from agent.triage.gather import Question
from agent.triage.past import Stretch
from agent.triage.verdicts import Diagnosis
from kvpulse.reader import StreamReader
from kvpulse.stream_values import Batch, Position, WriterState

NS: Final = 1_000_000_000
MOST_EVENTS: Final = 200_000
MANY: Final = 4_096
FEW: Final = 32
FAR_NS: Final = 60 * NS


class EngineClock:
    """The agent's clocks in a drill: where the engine's time has come to in the journal."""

    def __init__(self) -> None:
        self.read: Callable[[], int | None] = lambda: None
        self._latest_ns = 0

    def wall_ns(self) -> int:
        """Return the time of the newest event read."""
        self._latest_ns = self.read() or self._latest_ns
        return self._latest_ns

    def seconds(self) -> float:
        """Return it in seconds, for a monotonic clock."""
        return self._latest_ns / NS


@dataclass(frozen=True, slots=True)
class Lost:
    """A stretch of a run of which nothing is known, in seconds of engine time since it began."""

    start_seconds: float
    end_seconds: float


@dataclass(frozen=True, slots=True)
class Look:
    """A verdict and when it was reached, in seconds of engine time since the run began.

    Attributes:
        lost: What was missing of the run by then, oldest first.
    """

    at_seconds: float
    diagnosis: Diagnosis
    lost: tuple[Lost, ...] = ()


class PacedReader(StreamReader):
    """Reads a journal only as far as the engine had written it by a moment of its own time."""

    def __init__(self, directory: Path, position: Position | None = None) -> None:
        super().__init__(directory, position)
        self.began_ns: int | None = None
        self.reached_ns = 0
        self.until_ns = 0  # since it began

    def read(self, max_events: int = MOST_EVENTS) -> Batch | None:
        """Return the next events; None where the moment is reached, or the journal's end."""
        if self.began_ns is not None and self.reached_ns - self.began_ns >= self.until_ns:
            return None
        # The nearer the moment, the fewer: what follows may be much sparser than what was.
        left_ns = self.until_ns - (self.reached_ns - (self.began_ns or 0))
        batch = super().read(min(max_events, MANY if left_ns > FAR_NS else FEW))
        if batch is not None and len(batch.records):
            self.reached_ns = int(batch.records["ts_ns"][-1])
            if self.began_ns is None:
                self.began_ns = int(batch.records["ts_ns"][0])
        return batch


class FollowedRun:
    """One run of a drill's engine, read as far as asked for."""

    def __init__(self, found: FoundStream, store: Store, reads: Reads) -> None:
        self.clock = EngineClock()
        self._readers: list[PacedReader] = []
        self._follower = StreamFollower(
            found,
            store,
            Clocks(self.clock.wall_ns, self.clock.seconds),
            open_reader=self._open_reader,
        )
        self._engine, self._run_id = found.stream.engine, found.stream.run_id
        self._reads = reads
        self.clock.read = self._newest_event_ns
        self._started_ns: int | None = None
        self.has_ended = False

    @property
    def seconds(self) -> float:
        """Return how far it was read, since its beginning."""
        now_ns = self.clock.wall_ns()
        return 0.0 if self._started_ns is None else (now_ns - self._started_ns) / NS

    def advance(self, to_seconds: float) -> None:
        """Read up to about a moment; stops where the journal does."""
        (reader,) = self._readers
        reader.until_ns = int(to_seconds * NS)
        while not self.has_ended and self.seconds < to_seconds:
            step = self._follower.step(MOST_EVENTS)
            if not step.num_events and not step.may_have_more:
                self._end()

    def look(self, apart: tuple[Stretch, ...] = ()) -> Look:
        """Judge the run as it is stored now.

        Args:
            apart: Stretches that are known to be no example of health.
        """
        run = self._run()
        question = Question(run, now_ns=self.clock.wall_ns(), apart=apart)
        lost = tuple(
            Lost((gap.start_ns - run.started_at_ns) / NS, (gap.end_ns - run.started_at_ns) / NS)
            for gap in self._reads.gaps(run.run_key)
        )
        return Look(self.seconds, examine(self._reads, question), lost)

    def live(self) -> LiveEngine | None:
        """Return what the agent's loop would show of the run; None before its first commit."""
        state = RunState.LIVE if not self.has_ended else self._run().state
        return self._follower.live(state)

    def close(self) -> None:
        """Let go of the journal."""
        self._follower.close()

    def _open_reader(self, directory: Path, position: Position | None) -> PacedReader:
        self._readers.append(PacedReader(directory, position))
        return self._readers[-1]

    def _newest_event_ns(self) -> int | None:
        live = self._follower.live(RunState.LIVE)
        if live is None:
            return None
        self._started_ns = live.started_at_ns
        return live.last_event_at_ns

    def _end(self) -> None:
        self.has_ended = True
        writer = self._follower.look().writer
        if writer is not WriterState.ALIVE:
            self._follower.end(writer)

    def _run(self) -> RunRow:
        runs = self._reads.runs(self._engine)
        return next(run for run in runs if run.run_id == self._run_id)


def streams_of(folder: JournalFolder) -> list[FoundStream]:
    """Return the streams of a journal folder, the first run first."""
    return sorted(folder.streams(), key=lambda found: found.stream.run_id)
