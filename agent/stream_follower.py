"""Follow one stream: read, keep the ledger, commit; and go on where a killed agent stopped."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from agent.exhaustion import AvailableBlocks
from agent.ledger.delta import LedgerDelta, LiveState, RunShape
from agent.ledger.joined_batches import joined_batches
from agent.ledger.ledger import Ledger
from agent.ledger.resume import resume_ledger
from agent.live_view import LiveEngine
from agent.log_limit import OncePerHour
from agent.reads.models import Fingerprint, RunState
from agent.show_pace import ShowPace
from agent.sources.journal import FoundStream
from agent.store.store import Store
from agent.store.stream_id import Progress
from kvpulse.reader import StreamReader
from kvpulse.stream_values import Batch, Position, StreamStatus, WriterState

LOGGER: Final = logging.getLogger(__name__)
ENDED: Final = {WriterState.FINISHED: RunState.FINISHED, WriterState.DEAD: RunState.DEAD}


@dataclass(frozen=True, slots=True)
class Clocks:
    """The agent's own clocks; engine time comes with the events."""

    wall_ns: Callable[[], int] = field(default=time.time_ns)
    seconds: Callable[[], float] = field(default=time.monotonic)


@dataclass(frozen=True, slots=True)
class Step:
    """What one unit of work did."""

    num_events: int  # read and stored, or counted as lost
    may_have_more: bool
    committed: bool
    commit_seconds: float


class StreamFollower:
    """One stream's reader, ledger and writer. `step` does one bounded unit of work."""

    def __init__(
        self,
        found: FoundStream,
        store: Store,
        clocks: Clocks,
        *,
        open_reader: Callable[[Path, Position | None], StreamReader] = StreamReader,
    ) -> None:
        self.stream = found.stream
        self.show_pace = ShowPace(clocks.seconds())
        self.committed_at_ns = 0  # wall clock of the agent; 0: nothing yet
        self._clocks = clocks
        self._available = AvailableBlocks()
        self._log_limit = OncePerHour(clocks.seconds)
        self._writer = store.writer(found.stream)
        stored = self._writer.stored
        self.has_ended = stored is not None and stored.state is not RunState.LIVE
        self._reader = open_reader(found.directory, stored.position if stored else None)
        # Up to the last batch, and no further: a loss that the reader found since then is told
        # with its next batch, and must be found again should we be gone before that.
        self._position = self._reader.position
        self._ledger: Ledger | None = None
        self._shape: RunShape | None = None
        if stored is not None and not self.has_ended:
            self._ledger, self._shape = resume_ledger(stored), stored.shape
        self._unstored: tuple[LedgerDelta, Position] | None = None
        self._caught_up_at = clocks.seconds()
        self._started_at_ns = stored.started_at_ns if stored else 0
        self._behind_records = 0

    @property
    def behind_records(self) -> int:
        """Records that the writer had committed and we had not read, at the last look."""
        return self._behind_records

    def look(self) -> StreamStatus:
        """Ask how the stream stands on disk; once a second is enough."""
        status = self._reader.status()
        self._behind_records = status.behind_records
        return status

    def step(self, max_events: int) -> Step:
        """Read about `max_events` events at most and commit them.

        Raises:
            StoreUnwritable: Nothing was stored; the next step tries the same again.
            StoreConflict: Another agent has this stream now.
            JournalError: The stream cannot be read.
        """
        began = self._clocks.seconds()
        before = sum(self._position.counts)
        has_read_all = False
        if self._unstored is None:
            has_read_all = self._read(max_events)
        num_events = sum(self._position.counts) - before
        read_at = self._clocks.seconds()
        committed = self._commit()
        if has_read_all:
            self._caught_up_at = began
        return Step(num_events, not has_read_all, committed, self._clocks.seconds() - read_at)

    def settle(self) -> None:
        """Store what the ledger holds back for a second: there will be no later commit of ours.

        Raises:
            StoreUnwritable, StoreConflict: It was not stored; the next agent makes up for it.
        """
        if self._ledger is None or self.has_ended:
            return
        self._commit()
        self._unstored = (self._ledger.take(), self._position)
        self._commit()

    def end(self, writer: WriterState) -> None:
        """Mark the run as ended: its writer is gone, and everything was read and stored.

        Raises:
            StoreUnwritable: The mark could not be stored; calling again is safe.
        """
        if self._ledger is not None:
            self._ledger.close()
            self._unstored = self._unstored or (self._ledger.take(), self._position)
            self._commit()
        self._writer.end(ENDED[writer])
        self.has_ended = True
        self.close()

    def release(self) -> None:
        """Let another agent have the stream at once.

        Raises:
            StoreUnwritable: It could not be told; the lease passes on when it has been silent.
        """
        self._writer.release()

    def live(self, state: RunState) -> LiveEngine | None:
        """Return what to show of this stream; None before its first commit."""
        if self._ledger is None or self._writer.run_key is None:
            return None
        live = self._ledger.live()
        free, cached = live.gauges.get("free_blocks"), live.gauges.get("cached_blocks")
        self._available.add(
            live.t_ns,
            None if free is None or cached is None else free + cached,
            total=live.gauges.get("total_blocks"),
            num_gaps=live.num_gaps,
        )
        return LiveEngine(
            engine=self.stream.engine,
            run_id=self.stream.run_id,
            run_key=self._writer.run_key,
            started_at_ns=self._started_at_ns,
            state=state,
            fingerprint=_fingerprint(live),
            live=live,
            last_commit_at_ns=self.committed_at_ns,
            last_event_at_ns=live.t_ns + live.wall_offset_ns if live.t_ns else None,
            lag_seconds=max(0.0, self._clocks.seconds() - self._caught_up_at),
            behind_records=self._behind_records,
            exhaustion=self._available.estimate(),
        )

    def close(self) -> None:
        """Let go of the stream's files."""
        self._reader.close()

    def _read(self, max_events: int) -> bool:
        """Read into the ledger; return whether the stream has nothing more for now."""
        # The first commit holds the first record alone, a keyframe: so the first snapshot stands at
        # the very beginning, and the map can be rebuilt for every moment from there.
        wanted = 1 if self._ledger is None else max_events
        got = 0
        batches: list[Batch] = []
        # Read first, follow then: what a busy writer adds meanwhile would come in tiny batches, and
        # the ledger's cost is by batch. A batch holds at most as many lane words as events were
        # asked for, so it may fall short; the last stretch is not worth asking for again and again.
        while 2 * got < wanted:
            before = sum(self._position.counts)
            batch = self._reader.read(wanted - got)
            if batch is None:
                break
            batches.append(batch)
            self._position = batch.position
            # A record without events still takes its time.
            got += max(1, len(batch.records), sum(batch.position.counts) - before)
        self._tell_losses(batches)
        for batch in joined_batches(batches):
            self._follow(batch)
        return 2 * got < wanted

    def _tell_losses(self, batches: list[Batch]) -> None:
        for why in self._reader.damage:
            LOGGER.warning("%s: passing over a segment: %s", self.stream, why)
        self._reader.damage.clear()
        for gap in (batch.gap for batch in batches):
            if gap is not None and self._log_limit.is_due(gap.reason.value):
                what = f"{sum(gap.lost)} events lost ({gap.reason.value}), stored as a gap"
                LOGGER.warning("%s: %s; more of this is said in an hour", self.stream, what)

    def _follow(self, batch: Batch) -> None:
        if self._ledger is None:
            self._shape = RunShape(batch.total_blocks, batch.host_blocks, batch.block_size)
            self._ledger = Ledger(self._shape)
            self._started_at_ns = batch.clock.wall_ns
        self._ledger.apply(batch)

    def _commit(self) -> bool:
        if self._ledger is None or self._shape is None:
            return False
        if self._unstored is None:
            if self._position == self._writer.position:
                return False
            self._unstored = (self._ledger.take(), self._position)
        delta, position = self._unstored
        now_ns = self._clocks.wall_ns()
        self._writer.commit(delta, self._shape, Progress(position, self._behind_records, now_ns))
        self._unstored = None
        self.committed_at_ns = now_ns
        return True


def _fingerprint(live: LiveState) -> Fingerprint:
    stated = live.config or {}
    plain = (str, int, float, bool, type(None))
    return {name: value for name, value in stated.items() if isinstance(value, plain)}
