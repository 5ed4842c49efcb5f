"""What a stream's writing end holds, and how it counts what could not be written."""

import os
import weakref
from collections.abc import Callable, MutableSequence, Sequence
from pathlib import Path
from typing import ClassVar, Final

from kvpulse.emitter_choice import Emitter, HotPath
from kvpulse.events import MAX_KINDS, RECORD, REFUSED_KIND, Kind
from kvpulse.keyframe import Keyframe
from kvpulse.segment import WritableSegment
from kvpulse.segment_reserver import SegmentReserver

PACK: Final = RECORD.pack_into
SEQ_MASK: Final = 0xFFFF_FFFF
PAUSED_ON_REQUEST: Final = "paused on request"

Snapshot = Callable[[], Keyframe | None]
Counts = MutableSequence[int]
# Lane of records, clock, base of the numbers, events per kind, commit word, lane of words.
Hot = tuple[memoryview, Callable[[], int], int, Counts, memoryview, memoryview]


class StreamState(HotPath):
    """One stream's writing end without the writing itself."""

    emitter: ClassVar[Emitter] = Emitter.PYTHON

    __slots__ = (
        "__weakref__",
        "_anytime",
        "_base",
        "_clock",
        "_closed",
        "_emitted",
        "_has_safe_points",
        "_held_back",
        "_hot",
        "_index",
        "_keyframe_due",
        "_loss",
        "_not_written",
        "_nowhere",
        "_piece",
        "_refused",
        "_reserver",
        "_segment",
        "_shape_blocks",
        "_snapshot",
        "_soft_limit",
        "_soft_word",
        "_strings",
        "_unwritten_records",
        "_wall_clock",
        "_word",
        "directory",
        "missing_keyframes",
        "run_id",
    )

    def __init__(
        self,
        reserver: SegmentReserver,
        *,
        blocks: tuple[int, int, int],
        snapshot: Snapshot | None,
        clock: Callable[[], int],
        wall_clock: Callable[[], int],
    ) -> None:
        self.directory: Path = reserver.directory
        self.run_id = reserver.directory.name
        self.missing_keyframes = 0  # segments that could not begin with one
        self._reserver = reserver
        self._piece = reserver.shape.lane_capacity >> 2  # most lane words of one record
        self._shape_blocks = blocks  # total, host, block size
        self._snapshot = snapshot
        self._anytime = False
        self._clock = clock
        self._wall_clock = wall_clock
        self._emitted = self._new_counts()
        self._not_written = [0] * MAX_KINDS  # found no segment
        self._refused = [0] * MAX_KINDS  # written as a stand-in
        self._unwritten_records = 0
        self._strings: dict[str, int] = {}
        self._segment: WritableSegment | None = None
        self._loss = reserver.loss
        self._base = 0  # number of the present segment's first record
        self._index = self._word = 0
        self._soft_limit = self._soft_word = 0
        self._has_safe_points = False
        self._held_back = False  # paused on request
        self._keyframe_due = False
        self._closed = False
        nothing = memoryview(bytearray())
        commit = memoryview(bytearray(8)).cast("Q")
        self._nowhere: Hot = (nothing, clock, 0, self._emitted, commit, nothing.cast("I"))
        self._hot = self._nowhere
        reference = weakref.ref(self)
        reserver.on_gone = lambda: _ask_for_rotation(reference)
        os.register_at_fork(after_in_child=lambda: _close_in_child(reference))
        weakref.finalize(self, reserver.stop)

    @staticmethod
    def _new_counts() -> Counts:
        """Return a zero for each kind."""
        return [0] * MAX_KINDS

    def emitted(self) -> dict[Kind, int]:
        """Return how many events of each kind were stated, written or not."""
        return _by_kind(self._emitted)

    def not_written(self) -> dict[Kind, int]:
        """Return how many events of each kind found no segment, or did not fit a record."""
        return _by_kind([a + b for a, b in zip(self._not_written, self._refused, strict=True)])

    @property
    def total_blocks(self) -> int:
        """Usable blocks of the pool."""
        return self._shape_blocks[0]

    @property
    def clock(self) -> Callable[[], int]:
        """The engine's clock."""
        return self._clock

    @property
    def failure(self) -> str:
        """Why recording is paused, in words; empty while it is not."""
        if self._held_back:
            return PAUSED_ON_REQUEST
        return self._reserver.failure if self._segment is None else ""

    def _aim(self) -> None:
        """Point the fast way at the present segment."""
        segment = self._segment
        if segment is None:
            self._hot = self._nowhere
            return
        # The low 32 bits of the next number must come out of base + index.
        base = (self._base + self._index & SEQ_MASK) - self._index
        self._hot = (
            segment.records,
            self._clock,
            base,
            self._emitted,
            segment.commit,
            segment.lane,
        )

    def _lose(self, kind: int, events: int) -> None:
        """Count what could not be written."""
        if self._closed:
            return
        if self._segment is not None:
            self._refuse(kind, events)  # larger than any segment, but this one goes on
            return
        self._emitted[kind] += events
        self._not_written[kind] += events
        self._unwritten_records += 1
        self._base += 1
        self._adopt_loss_page()
        if self._loss is not None:
            self._loss.add(kind, self._not_written[kind], self._unwritten_records)

    def _refuse(self, kind: int, events: int) -> None:
        """Write a stand-in for an event whose values do not fit a record."""
        if self._closed:
            return
        if not self._make_room(0):
            self._lose(kind, events)
            return
        self._emitted[kind] += events
        self._refused[kind] += events
        records, _, base, _, commit, _ = self._hot
        at = self._index
        PACK(records, at << 5, 0, base + at, REFUSED_KIND, 0, 0, 0, 0, events & SEQ_MASK, kind)
        self._index = at = at + 1
        commit[0] = at

    def _make_room(self, words: int) -> bool:
        """Make sure that one record with `words` lane words fits; False when it cannot."""
        raise NotImplementedError

    def _let_go(self, state: int) -> None:
        """Mark the present segment and leave its mapping to the helper."""
        segment = self._segment
        if segment is None:
            return
        self._base += self._index
        self._index = self._word = 0
        self._soft_limit = self._soft_word = 0
        self._segment = None
        self._hot = self._nowhere
        segment.state[0] = state
        self._reserver.retire(segment)

    def _adopt_loss_page(self) -> None:
        """Follow the helper to a page that it made anew."""
        if self._reserver.loss is not self._loss:
            self._loss = self._reserver.loss
            if self._loss is not None:
                self._loss.fill(self._not_written, self._unwritten_records)


def _by_kind(counts: Sequence[int]) -> dict[Kind, int]:
    return {kind: counts[kind] for kind in Kind if counts[kind]}


def _ask_for_rotation(reference: "weakref.ref[StreamState]") -> None:
    """Send the writer's next event the slow way; called by the helper thread."""
    state = reference()
    if state is not None:
        state._hot = state._nowhere
        state._soft_limit = 0


def _close_in_child(reference: "weakref.ref[StreamState]") -> None:
    """After a fork: the child neither writes nor holds the lock."""
    state = reference()
    if state is not None and not state._closed:
        state._closed = True
        state._hot = state._nowhere
        state._reserver.abandon()
