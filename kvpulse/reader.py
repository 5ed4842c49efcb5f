"""The reading end of a stream: vectorised, resumable, exact about what is missing."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from kvpulse.disk_usage import bytes_on_disk
from kvpulse.errors import JournalError, NotAJournalError
from kvpulse.events import MAX_KINDS
from kvpulse.journal_listing import list_streams
from kvpulse.lifetime_lock import is_locked
from kvpulse.loss_page import LossTotals, read_loss_page
from kvpulse.record_checks import check_records
from kvpulse.segment import (
    ORDERING_TOTAL,
    STATE_FINISHED,
    STATE_OPEN,
    ProcessIdentity,
    process_identity,
)
from kvpulse.segment_view import (
    DamagedSegmentError,
    SegmentView,
    segment_numbers,
    segment_path,
)
from kvpulse.stream_losses import LossAccount, at_header, at_the_end, in_a_segment
from kvpulse.stream_values import (
    KNOWN_KIND,
    RECORD_DTYPE,
    Batch,
    ClockPair,
    Position,
    StreamStatus,
    WriterState,
    event_counts,
)

__all__ = ["StreamReader", "list_streams"]

IDLE_POLLS: Final = 64
MOST_RECORDS: Final = 65_536  # at once, whatever the caller asks: bounds memory


class StreamReader:
    """Reads one stream, from a position on.

    Args:
        directory: `<journal>/<engine>/<run id>`; a read-only mount will do.
        position: Where an earlier reader got to.
        is_alive: Says whether the writer lives, for a reader in the writer's own process, which
            cannot ask the lock; `Recorder.reader` supplies it.
    """

    def __init__(
        self,
        directory: Path,
        position: Position | None = None,
        *,
        is_alive: Callable[[], bool] | None = None,
    ) -> None:
        self.directory = Path(directory)
        self.position = position or Position()
        self._is_alive = is_alive
        self._view: SegmentView | None = None
        self._account = LossAccount()
        self._seen_commit = 0
        self._last_ts = 0
        self._idle_polls = 0
        self._next_path = ""
        self._writer: ProcessIdentity | None = None
        self._last_damaged = -1
        self.damage: list[str] = []  # why segments were passed over; the caller may empty it

    def read(self, max_events: int = 65_536) -> Batch | None:
        """Return the next records, or None when there is nothing new.

        A batch holds at most about `max_events` events, but always a whole record. When the writer
        has ended and all is read, a last batch without records tells the final loss, if any.

        Raises:
            JournalError: The stream is no journal, or of another version.
        """
        while True:
            view = self._view or self._open_next()
            if view is None:
                return self._end(max_events)
            batch = self._read_segment(view, max(1, max_events))
            if batch is not None:
                return batch
            if self._is_idle(view):
                return None
            if not self._leave(view):
                return self._end(max_events)

    def status(self) -> StreamStatus:
        """Return how the stream stands, read or not."""
        numbers = segment_numbers(self.directory)
        loss = read_loss_page(self.directory)
        state, newest = _newest(self.directory, numbers, loss)
        writer = self._writer_state(state, loss)
        return StreamStatus(
            writer=writer,
            newest_seq=newest,
            behind_records=max(0, newest - self.position.seq),
            bytes_on_disk=bytes_on_disk(self.directory),
            segments=len(numbers),
            not_written=sum(loss.not_written) if loss is not None else 0,
            paused=writer is WriterState.ALIVE and state != STATE_OPEN,
        )

    def close(self) -> None:
        """Let go of the open segment."""
        if self._view is not None:
            self._view.close()
            self._view = None

    def __enter__(self) -> "StreamReader":
        """Return the reader itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Let go of the open segment."""
        self.close()

    def _open_next(self) -> SegmentView | None:
        """Open the position's segment, or the first sound one after it."""
        numbers = [n for n in segment_numbers(self.directory) if n >= self.position.segment]
        for number in numbers:
            try:
                view = SegmentView(segment_path(self.directory, number), number)
            except FileNotFoundError:
                continue
            except (DamagedSegmentError, NotAJournalError) as error:
                # Alone, it is not ours to read; among others, it is damage to be counted.
                nothing_read = self.position.seq == 0 and len(numbers) == 1
                if isinstance(error, NotAJournalError) and nothing_read:
                    raise
                self._account.damaged = True
                self._note_damage(number, str(error))
                continue
            self._adopt(view)
            return view
        return None

    def _note_damage(self, number: int, why: str) -> None:
        if number > self._last_damaged:
            self._last_damaged = number
            self.damage.append(why)

    def _adopt(self, view: SegmentView) -> None:
        self._view = view
        self._next_path = str(segment_path(self.directory, view.number + 1))
        self._writer = view.header.process
        self._seen_commit = 0
        if view.number == self.position.segment and self.position.record:
            return  # resumed inside: the header was accounted for before
        self.position = at_header(self._account, self.position, view.header, start_ns=self._last_ts)

    def _read_segment(self, view: SegmentView, max_events: int) -> Batch | None:
        """Return the segment's next good records; damaged ones become part of the gap."""
        header = view.header
        while True:
            start = self.position.record
            available = min(self._committed(view), header.shape.record_capacity) - start
            if available <= 0:
                return None
            records = view.records(start, min(available, max_events, MOST_RECORDS))
            seq = header.first_seq + start
            checked = check_records(
                records, first_seq=seq, lane_capacity=header.shape.lane_capacity
            )
            good = int(np.argmin(checked.good)) if not checked.good.all() else len(records)
            if good:
                # At most max_events lane words, but always one record; what is left out has
                # vouched for the length of the last one.
                room = np.cumsum(np.maximum(checked.words[:good], 1))
                good = max(1, int(np.searchsorted(room, max_events, side="right")))
                batch = self._batch(view, records[:good], checked.words[:good])
                if batch is not None:
                    return batch
            bad = _leading_bad(checked.good, len(records), available)
            self.position = in_a_segment(
                self._account, self.position, records[:bad], checked.refused[:bad], bad
            )

    def _batch(self, view: SegmentView, records: np.ndarray, words: np.ndarray) -> Batch | None:
        """Return the batch of `records`, or None where their lane is not in the file."""
        header = view.header
        known = KNOWN_KIND[records["kind"]]
        unknown = len(records) - int(known.sum())
        users = np.flatnonzero(words)
        base = length = 0
        if len(users):
            base = int(records["first"][users[0]])
            length = max(0, int(records["first"][users[-1]]) + int(words[users[-1]]) - base)
        lane = view.lane(base, length)
        if len(lane) < length:
            return None
        kept = records[known] if unknown else records
        added = np.bincount(kept["kind"], weights=event_counts(kept), minlength=MAX_KINDS)
        old = self.position
        counts = tuple(a + int(b) for a, b in zip(old.counts, added.tolist(), strict=True))
        self.position = replace(
            old, record=old.record + len(records), seq=old.seq + len(records), counts=counts
        )
        if len(kept):
            self._last_ts = int(kept["ts_ns"][-1])
        return Batch(
            records=kept,
            lane=lane,
            lane_base=base,
            seq0=old.seq,
            first_in_segment=old.record == 0,
            gap=self._account.take(),
            clock=ClockPair(header.wall_ns, header.monotonic_ns),
            total_blocks=header.total_blocks,
            host_blocks=header.host_blocks,
            block_size=header.block_size,
            position=self.position,
            unknown=unknown,
        )

    def _committed(self, view: SegmentView) -> int:
        """Return how many records may be looked at."""
        live = view.live()
        if view.header.ordering == ORDERING_TOTAL or live.state != STATE_OPEN:
            return live.commit
        # Where stores may overtake each other, one poll of delay lets the record arrive.
        seen, self._seen_commit = self._seen_commit, live.commit
        return seen

    def _is_idle(self, view: SegmentView) -> bool:
        """Say cheaply that a living writer has nothing new; asked a hundred times a second."""
        self._idle_polls += 1
        if self._idle_polls % IDLE_POLLS == 0 or view.live().state != STATE_OPEN:
            return False  # now and then all is looked at, in case the state word is damaged
        if os.path.lexists(self._next_path):
            return False
        return self._writer_state(STATE_OPEN, None) is WriterState.ALIVE

    def _leave(self, view: SegmentView) -> bool:
        """Go to the next segment once it is there: then this one will not grow any more."""
        later = [n for n in segment_numbers(self.directory) if n > view.number]
        if not later:
            return False
        live = view.live()
        if min(live.commit, view.header.shape.record_capacity) > self.position.record:
            self._seen_commit = live.commit
            return True  # committed in the meantime: read on here
        self.close()
        self.position = replace(self.position, segment=view.number + 1, record=0)
        return True

    def _end(self, max_events: int) -> Batch | None:
        """Return the final loss once the writer has ended and everything is read."""
        loss = read_loss_page(self.directory)
        live = self._view.live() if self._view is not None else None
        state = live.state if live is not None else 0
        if self._writer_state(state, loss) is WriterState.ALIVE:
            return None
        # Asked in this order, nothing can have been committed unseen.
        if self._has_more(live.commit if live is not None else 0):
            return self.read(max_events)
        header = self._view.header if self._view is not None else None
        last = max(segment_numbers(self.directory), default=-1)
        if header is None and self.position.segment > max(last, 0):
            return None  # told before
        old = self.position
        self.close()
        self.position = at_the_end(
            self._account, old, header, read_loss_page(self.directory), start_ns=self._last_ts
        )
        self.position = replace(self.position, segment=max(last, 0) + 1, record=0)
        gap = self._account.take()
        if gap is None:
            return None
        clock = ClockPair(header.wall_ns, header.monotonic_ns) if header else ClockPair(0, 0)
        return Batch(
            records=np.empty(0, RECORD_DTYPE),
            lane=np.empty(0, np.uint32),
            lane_base=0,
            seq0=self.position.seq,
            first_in_segment=False,
            gap=gap,
            clock=clock,
            total_blocks=header.total_blocks if header else 0,
            host_blocks=header.host_blocks if header else 0,
            block_size=header.block_size if header else 0,
            position=self.position,
            unknown=0,
        )

    def _has_more(self, commit: int) -> bool:
        """Say whether something readable came up since the last look."""
        view = self._view
        if view is None:
            return False
        limit = view.header.shape.record_capacity
        later = any(n > view.number for n in segment_numbers(self.directory))
        newest = min(max(view.live().commit, commit), limit)
        if newest > self.position.record:
            self._seen_commit = newest
            return True
        return later and self._leave(view)

    def _writer_state(self, state: int, loss: LossTotals | None) -> WriterState:
        if state == STATE_FINISHED or (loss is not None and loss.state == STATE_FINISHED):
            return WriterState.FINISHED
        if self._is_alive is not None:
            return WriterState.ALIVE if self._is_alive() else WriterState.DEAD
        writer = loss.process if loss is not None else self._writer
        if writer is not None and writer.pid == os.getpid() and writer == process_identity():
            # This very process: it would be told no, and would drop its own lock by asking.
            closed = loss is not None and loss.state != 0
            return WriterState.DEAD if closed else WriterState.ALIVE
        return WriterState.ALIVE if is_locked(self.directory) else WriterState.DEAD


def _leading_bad(good: np.ndarray, looked_at: int, available: int) -> int:
    """Return how many records to step over: the bad ones in front, or all if none is there."""
    if looked_at == 0:
        return available  # the file ends before what its header promises
    if good[0]:
        return 1  # whole, but its lane words are not in the file
    return int(np.argmax(good)) if good.any() else looked_at


def _newest(directory: Path, numbers: list[int], loss: LossTotals | None) -> tuple[int, int]:
    """Return the last segment's state and the newest record number that is accounted for."""
    for number in reversed(numbers):
        try:
            view = SegmentView(segment_path(directory, number), number)
        except (OSError, DamagedSegmentError, JournalError):
            continue
        live = view.live()
        view.close()
        header = view.header
        unwritten = loss.records - header.unwritten_records if loss is not None else 0
        committed = min(live.commit, header.shape.record_capacity)
        return live.state, header.first_seq + committed + max(0, unwritten)
    return 0, loss.records if loss is not None else 0
