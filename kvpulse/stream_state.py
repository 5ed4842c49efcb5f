"""What happens to a stream when it is not simply writing: rotation, keyframes, pauses, the end.

Nothing here waits, and nothing that goes wrong here reaches the caller. Where the next segment is
not ready, events are counted per kind as not written until it is. A keyframe states the state after
every record before it, so it is taken only at a *safe point* (the end of `step`, `pool` or
`heartbeat`, when the engine's own state and what it recorded agree), or at once where the snapshot
follows the records themselves, as `ShadowPool`'s does.
"""

import os
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Final

from kvpulse.events import MAX_KINDS, RECORD, REFUSED_KIND, Kind
from kvpulse.keyframe import Keyframe, encode_keyframe
from kvpulse.segment import (
    STATE_CLOSED,
    STATE_FINISHED,
    STATE_OPEN,
    SegmentHeader,
    WritableSegment,
    ordering_in_force,
)
from kvpulse.segment_reserver import SegmentReserver

PACK: Final = RECORD.pack_into
SEQ_MASK: Final = 0xFFFF_FFFF
KEYFRAME: Final = int(Kind.KEYFRAME)
DEFINE: Final = int(Kind.DEFINE)

Snapshot = Callable[[], Keyframe | None]


class StreamState:
    """One stream's writing end without the writing itself."""

    __slots__ = (
        "__weakref__",
        "_anytime",
        "_base",
        "_clock",
        "_closed",
        "_commit",
        "_emitted",
        "_has_safe_points",
        "_index",
        "_keyframe_due",
        "_lane",
        "_lane_limit",
        "_limit",
        "_loss",
        "_map",
        "_not_written",
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
        self.missing_keyframes = 0
        self._reserver = reserver
        self._shape_blocks = blocks  # total, host, block size
        self._snapshot = snapshot
        self._anytime = False
        self._clock = clock
        self._wall_clock = wall_clock
        self._emitted = [0] * MAX_KINDS
        self._not_written = [0] * MAX_KINDS
        self._refused = [0] * MAX_KINDS
        self._unwritten_records = 0
        self._strings: dict[str, int] = {}
        self._segment: WritableSegment | None = None
        self._loss = reserver.loss
        self._index = self._base = self._word = 0
        self._limit = self._lane_limit = self._soft_limit = self._soft_word = 0
        self._has_safe_points = False
        self._keyframe_due = False
        self._closed = False
        reference = weakref.ref(self)
        reserver.on_gone = lambda: _ask_for_rotation(reference)
        os.register_at_fork(after_in_child=lambda: _close_in_child(reference))
        weakref.finalize(self, reserver.stop)

    def emitted(self) -> dict[Kind, int]:
        """Return how many events of each kind were stated, written or not."""
        return _by_kind(self._emitted)

    def not_written(self) -> dict[Kind, int]:
        """Return how many events of each kind found no segment, or did not fit a record."""
        return _by_kind([a + b for a, b in zip(self._not_written, self._refused, strict=True)])

    @property
    def failure(self) -> str:
        """Why recording is paused, in words; empty while it is not."""
        return self._reserver.failure if self._segment is None else ""

    def set_snapshot(self, snapshot: Snapshot, *, anytime: bool = False) -> None:
        """Supply keyframes from now on, beginning with one at the next safe point.

        Args:
            snapshot: Returns the state after every record written so far, or None.
            anytime: That holds even between two records of one act, as it does for a follower
                of the records such as `ShadowPool`; else only at the end of a step.
        """
        self._snapshot = snapshot
        self._anytime = anytime
        self._keyframe_due = True
        self._soft_limit = 0

    def close(self, *, finished: bool = True) -> None:
        """End the stream; `finished` says that the engine ended on purpose."""
        if self._closed:
            return
        self._reserver.join()
        segment = self._segment
        unplaced = segment is None or self._reserver.gone_number == segment.number
        # The last chance to leave exact totals on disk, when nothing waits for us any more.
        if unplaced and (self._reserver.ready is not None or self._reserver.attempt()):
            self._rotate(at_safe_point=True)
        self._closed = True
        state = STATE_FINISHED if finished else STATE_CLOSED
        self._let_go(state)
        self._adopt_loss_page()
        if self._loss is not None:
            self._loss.finish(state, self._emitted)
        self._reserver.stop()

    def _make_room(self, words: int) -> bool:
        """Make sure that one record with `words` lane words fits; False when it cannot."""
        segment = self._segment
        if self._closed:
            return False
        if segment is None:
            if self._has_safe_points and not self._anytime:
                return False  # resume where a keyframe can be taken
        elif (
            self._index < segment.shape.record_capacity
            and self._word + words <= segment.shape.lane_capacity
            and self._reserver.gone_number != segment.number
        ):
            self._limit = segment.shape.record_capacity
            self._lane_limit = segment.shape.lane_capacity
            return True
        elif words > segment.shape.lane_capacity >> 1:
            return False
        if not self._rotate(at_safe_point=False):
            self._pause()
            return False
        return self._word + words <= self._lane_limit

    def _safe_point(self) -> None:
        """Rotate or take a keyframe where one is due; the engine's state is whole here."""
        if self._closed:
            return
        self._has_safe_points = True
        segment = self._segment
        if (
            segment is None
            or self._index >= segment.shape.record_capacity * 7 // 8
            or self._word >= segment.shape.lane_capacity * 7 // 8
            or self._reserver.gone_number == segment.number
        ):
            # Not ready: the last eighth of the segment is still there to write into.
            self._rotate(at_safe_point=True)
        elif self._keyframe_due:
            self._write_keyframe()
        self._set_soft_limits()

    def _rotate(self, *, at_safe_point: bool) -> bool:
        """Go on in the reserved segment; False when there is none or it cannot be had."""
        segment = self._reserver.take()
        if segment is None:
            return False
        try:
            self._header(segment).pack_into(segment.map)
            segment.state[0] = STATE_OPEN
            segment.publish()
        except Exception as error:  # noqa: BLE001 - the engine must survive a lost directory
            self._reserver.failure = str(error)
            self._reserver.retire(segment)
            return False
        self._reserver.published(segment)
        self._adopt_loss_page()
        self._base += self._index
        self._let_go(STATE_CLOSED)
        self._segment = segment
        self._map = segment.map
        self._lane = segment.lane
        self._commit = segment.commit
        self._index = self._word = 0
        self._limit = segment.shape.record_capacity
        self._lane_limit = segment.shape.lane_capacity
        self._keyframe_due = True
        if self._snapshot is None:
            self._define_again()
        if at_safe_point or self._anytime or self._snapshot is None:
            self._write_keyframe()
        self._set_soft_limits()
        return True

    def _header(self, segment: WritableSegment) -> SegmentHeader:
        total_blocks, host_blocks, block_size = self._shape_blocks
        return SegmentHeader(
            segment=segment.number,
            first_seq=self._base + self._index,
            wall_ns=self._wall_clock(),
            monotonic_ns=self._clock(),
            shape=segment.shape,
            total_blocks=total_blocks,
            host_blocks=host_blocks,
            block_size=block_size,
            ordering=ordering_in_force(),
            process=self._reserver.process,
            unwritten_records=self._unwritten_records,
            emitted=tuple(self._emitted),
            not_written=tuple(self._not_written),
        )

    def _set_soft_limits(self) -> None:
        """Say when the next safe point has something to do."""
        segment = self._segment
        if segment is None or self._keyframe_due or not self._has_safe_points:
            self._soft_limit = self._soft_word = 0
            return
        self._soft_limit = segment.shape.record_capacity * 7 // 8
        self._soft_word = segment.shape.lane_capacity * 7 // 8

    def _write_keyframe(self) -> None:
        """Ask the engine for its state and write it as one record."""
        self._keyframe_due = False
        try:
            keyframe = self._snapshot() if self._snapshot is not None else None
            strings = {string_id: text for text, string_id in self._strings.items()}
            data = encode_keyframe(keyframe, strings) if keyframe is not None else b""
            if not data or len(data) > 2 * self._lane_limit:
                self.missing_keyframes += 1
                return
            self._put_keyframe(data)
        except Exception:  # noqa: BLE001 - a failing snapshot costs the keyframe, nothing else
            self.missing_keyframes += 1

    def _put_keyframe(self, data: bytes) -> None:
        words = len(data) // 4
        if self._index >= self._limit or self._word + words > self._lane_limit:
            self.missing_keyframes += 1
            return
        first = self._word
        self._put_lane(first, data)
        at = 4096 + self._index * 32
        seq = self._base + self._index & SEQ_MASK
        PACK(self._map, at, self._clock(), seq, KEYFRAME, 0, 0, 0, first, words, 0)
        self._emitted[KEYFRAME] += 1
        self._word = first + words
        self._index += 1
        self._commit[0] = self._index

    def _put_lane(self, first: int, data: bytes) -> None:
        assert self._segment is not None
        at = self._segment.shape.lane_offset + 4 * first
        self._map[at : at + len(data)] = data

    def _define_again(self) -> None:
        """Without keyframes, each segment states its strings itself."""
        for text, string_id in self._strings.items():
            self._emit_text(DEFINE, 1, string_id, text.encode())

    def _emit_text(self, kind: int, flags: int, tenant: int, text: bytes) -> None:
        raise NotImplementedError

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
        if self._index >= self._limit and not self._make_room(0):
            self._lose(kind, events)
            return
        self._emitted[kind] += events
        self._refused[kind] += events
        at = 4096 + self._index * 32
        seq = self._base + self._index & SEQ_MASK
        PACK(self._map, at, 0, seq, REFUSED_KIND, 0, 0, 0, 0, events & SEQ_MASK, kind)
        self._index += 1
        self._commit[0] = self._index

    def _pause(self) -> None:
        """Close the full segment; what follows is counted until the next one is there."""
        self._base += self._index
        self._index = self._word = 0
        self._limit = self._lane_limit = self._soft_limit = self._soft_word = 0
        self._let_go(STATE_CLOSED)

    def _let_go(self, state: int) -> None:
        """Mark the present segment and leave its mapping to the helper."""
        segment = self._segment
        if segment is None:
            return
        self._limit = self._lane_limit = self._soft_limit = self._soft_word = 0
        segment.state[0] = state
        self._segment = None
        self._reserver.retire(segment)

    def _adopt_loss_page(self) -> None:
        """Follow the helper to a page it made anew."""
        if self._reserver.loss is not self._loss:
            self._loss = self._reserver.loss
            if self._loss is not None:
                self._loss.fill(self._not_written, self._unwritten_records)


def _by_kind(counts: list[int]) -> dict[Kind, int]:
    return {kind: counts[kind] for kind in Kind if counts[kind]}


def _ask_for_rotation(reference: "weakref.ref[StreamState]") -> None:
    state = reference()
    if state is not None:
        state._limit = 0
        state._soft_limit = 0


def _close_in_child(reference: "weakref.ref[StreamState]") -> None:
    """After a fork: the child neither writes nor holds the lock."""
    state = reference()
    if state is not None and not state._closed:
        state._closed = True
        state._limit = state._lane_limit = 0
        state._reserver.abandon()
