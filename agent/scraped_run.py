"""Write one scraped engine's looks into the store: one run, one lease, each look one commit."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from agent.ledger.delta import GapRow, LedgerDelta, RunShape
from agent.reads.models import Fingerprint, RunState
from agent.reads.reads import Reads
from agent.scraped.fingerprint import fingerprint_of
from agent.scraped.look import look_of
from agent.scraped.moves import Moves, is_restart, moves
from agent.scraped.pool import usable_blocks
from agent.scraped.reading import Reading
from agent.scraped.rows import Interval, opened, rows_of
from agent.scraped.run_names import RunChoice, choose_run, next_run
from agent.store.store import RunWriter, Store
from agent.store.stream_id import Progress, StreamId
from kvpulse.events import MAX_KINDS
from kvpulse.stream_values import Position

MISSED_LOOKS: Final = 3  # so many, and what passed in between is a gap
NOTHING: Final = (0,) * MAX_KINDS
NOBODY_LOOKED: Final = "no agent looked"


@dataclass(frozen=True, slots=True)
class _Pending:
    """A commit that is not known to be stored, and what is so once it is."""

    delta: LedgerDelta
    progress: Progress
    reading: Reading
    open_: Mapping[int, Interval]


class ScrapedRun:
    """The runs of one scraped engine, one after the other."""

    def __init__(self, engine: str, store: Store, *, page: str, seconds: float) -> None:
        self.engine = engine
        self._store = store
        self._page = page
        self._seconds = seconds
        self._writer: RunWriter | None = None
        self._shape = RunShape(0, 0, 1)
        self._before: Reading | None = None  # the last look that is stored
        self._last_ns: int | None = None  # when a run that goes on was looked at last
        self._open: Mapping[int, Interval] = {}
        self._pending: _Pending | None = None
        self.fingerprint: Fingerprint = {}
        self.started_at_ns = 0

    @property
    def writer(self) -> RunWriter | None:
        """The writer of the run that is written; None before the first look."""
        return self._writer

    @property
    def stream(self) -> StreamId | None:
        """Whose lease is to be renewed."""
        return None if self._writer is None else self._writer.stream

    @property
    def total_blocks(self) -> int | None:
        """How many blocks can hold tokens; None: the page does not say."""
        return self._shape.total_blocks or None

    @property
    def has_pending(self) -> bool:
        """Whether a look waits to be stored; until it is, no other is to be taken."""
        return self._pending is not None

    def take(self, reading: Reading, reads: Reads, why_missed: str) -> None:
        """Take in a look and store it.

        Args:
            why_missed: Why no look came in the time before, if so.

        Raises:
            StreamHeld: Another agent writes this engine.
            StoreUnwritable: It is not stored; `settle` tries again.
            StoreConflict: Another agent took over.
        """
        if self._writer is not None and self._before is not None:
            if is_restart(self._before, reading):
                self._writer.end(RunState.FINISHED)
                self._begin(reading, RunChoice(next_run(self._writer.stream.run_id), None, None))
        elif self._writer is None:
            self._resume(reading, reads)
        self._pending = self._commit_of(reading, why_missed)
        self.settle()

    def settle(self) -> None:
        """Store what waits; raises as `take`."""
        if self._pending is None or self._writer is None:
            return
        pending = self._pending
        self._writer.commit(pending.delta, self._shape, pending.progress)
        self._pending, self._before, self._open = None, pending.reading, pending.open_
        self._last_ns = pending.reading.t_ns

    def release(self) -> None:
        """Let another agent go on at once."""
        if self._writer is not None:
            self._writer.release()

    def _resume(self, reading: Reading, reads: Reads) -> None:
        choice = choose_run(reads.runs(self.engine), reading)
        if choice.ended is not None:
            self._store.writer(StreamId(self.engine, choice.ended.run_id)).end(RunState.FINISHED)
        self._begin(reading, choice)
        run = choice.goes_on
        if run is not None:
            self._last_ns = run.last_event_at_ns
            self.started_at_ns = run.started_at_ns
            if self._last_ns is not None:
                self._open = self._store.open_intervals(run.run_key, self._last_ns)

    def _begin(self, reading: Reading, choice: RunChoice) -> None:
        self._writer = self._store.writer(StreamId(self.engine, choice.run_id))
        self._before, self._last_ns, self._open = None, None, {}
        stated = reading.stated
        total = usable_blocks(stated, [reading.usage_ratio])
        self._shape = RunShape(total or 0, 0, stated.block_size or 1)
        self.started_at_ns = reading.t_ns
        self.fingerprint = fingerprint_of(reading, page=self._page, seconds=self._seconds)

    def _commit_of(self, reading: Reading, why_missed: str) -> _Pending:
        assert self._writer is not None
        increases, gaps = self._since(reading, why_missed or NOBODY_LOOKED)
        look = look_of(reading, increases, self.total_blocks)
        open_ = opened(self._open, look, reading.t_ns)
        rows = rows_of(open_, look)
        before = self._writer.position
        seq = 1 if before is None else before.seq + 1
        delta = LedgerDelta(
            seq=seq,
            t_ns=reading.t_ns,
            wall_offset_ns=0,
            rollups=rows.rollups,
            latencies=rows.latencies,
            labelled=rows.labelled,
            gaps=gaps,
            # Not of each look: a page's means since its start would be another configuration.
            config=self.fingerprint if before is None else None,
        )
        position = Position(segment=0, record=0, seq=seq, counts=NOTHING, lost=NOTHING)
        return _Pending(delta, Progress(position, 0, reading.t_ns), reading, open_)

    def _since(self, reading: Reading, why: str) -> tuple[Moves | None, tuple[GapRow, ...]]:
        """Return what moved since the look before, or the gap in which nobody knows when it did."""
        if self._last_ns is None:
            return None, ()
        is_late = reading.t_ns - self._last_ns > MISSED_LOOKS * self._seconds * 1e9
        if self._before is not None and not is_late:
            return moves(self._before, reading), ()
        position = None if self._writer is None else self._writer.position
        assert position is not None  # a look before was stored
        seq = position.seq
        gap = GapRow(seq, seq + 1, self._last_ns, reading.t_ns, why, NOTHING)
        return None, (gap,)
