"""When a stream changes segments and takes keyframes, and how it ends.

Nothing here waits, and nothing that goes wrong here reaches the caller. Where the next segment is
not ready, events are counted per kind as not written until it is. A keyframe states the state after
every record before it, so it is taken only at a *safe point* (the end of `step`, `pool` or
`heartbeat`, when the engine's own state and what it recorded agree), or at once where the snapshot
follows the records themselves, as `ShadowPool`'s does.
"""

from typing import Final

from kvpulse.events import Kind
from kvpulse.keyframe import Part, encode_keyframe
from kvpulse.segment import (
    STATE_CLOSED,
    STATE_FINISHED,
    STATE_OPEN,
    SegmentHeader,
    WritableSegment,
)
from kvpulse.segment_tail import give_back_unused
from kvpulse.stream_state import PACK, Snapshot, StreamState

KEYFRAME: Final = int(Kind.KEYFRAME)
DEFINE: Final = int(Kind.DEFINE)


class StreamRotation(StreamState):
    """Segments, keyframes, pauses and the end."""

    __slots__ = ()

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

    def pause_writing(self) -> None:
        """Write nothing until `resume_writing`; what is stated meanwhile is counted as not written.

        For an engine that must shed the work of recording for a while, and for tests of what reads
        it: a reader is told of every event that is missing, by kind. Ends the present segment.
        """
        if self._closed or self._held_back:
            return
        self._held_back = True
        self._let_go(STATE_CLOSED)

    def resume_writing(self) -> None:
        """Go on from the next safe point, in a new segment that begins with a keyframe."""
        self._held_back = False

    def close(self, *, finished: bool = True) -> None:
        """End the stream; `finished` says that the engine ended on purpose."""
        if self._closed:
            return
        self._reserver.join()
        segment = self._segment
        unplaced = segment is None or self._reserver.gone_number == segment.number
        # The last chance to leave exact totals on disk, when nothing waits for us any more.
        if unplaced and (self._reserver.ready is not None or self._reserver.attempt()):
            self._held_back = False  # what is refused on the way needs a place too
            self._rotate(at_safe_point=True)
        self._closed = True
        state = STATE_FINISHED if finished else STATE_CLOSED
        last, records, words = self._segment, self._index, self._word
        self._let_go(state)
        self._adopt_loss_page()
        if self._loss is not None:
            self._loss.finish(state, self._emitted)
        self._reserver.stop()
        if last is not None:
            give_back_unused(last.path, last.shape, records=records, words=words)

    def _make_room(self, words: int) -> bool:
        segment = self._segment
        if self._closed or self._held_back:
            return False
        if segment is None:
            if self._has_safe_points and not self._anytime:
                return False  # resume where a keyframe can be taken
        elif words > segment.shape.lane_capacity >> 1:
            return False
        elif (
            self._index < segment.shape.record_capacity
            and self._word + words <= segment.shape.lane_capacity
            and self._reserver.gone_number != segment.number
        ):
            self._aim()
            return True
        if not self._rotate(at_safe_point=False):
            self._pause()
            return False
        return words <= self._reserver.shape.lane_capacity - self._word

    def _pause(self) -> None:
        """Close the full segment; what follows is counted until the next one is there."""
        self._let_go(STATE_CLOSED)

    def _safe_point(self) -> None:
        """Rotate or take a keyframe where one is due; the engine's state is whole here."""
        if self._closed or self._held_back:
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
            self._reserver.rejected(segment, str(error))
            return False
        self._reserver.published(segment)
        self._adopt_loss_page()
        self._let_go(STATE_CLOSED)
        self._segment = segment
        self._aim()
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
            ordering=self._reserver.ordering,
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
            if keyframe is None or not self._put_keyframe(encode_keyframe(keyframe, strings)):
                self.missing_keyframes += 1
        except Exception:  # noqa: BLE001 - a failing snapshot costs the keyframe, nothing else
            self.missing_keyframes += 1

    def _put_keyframe(self, parts: list[Part]) -> bool:
        """Write a keyframe's words and record; False where they would not leave room for events."""
        segment = self._segment
        assert segment is not None
        words = sum(map(len, parts)) // 4
        first = self._word
        at = self._index
        half_full = words > segment.shape.lane_capacity >> 1
        if half_full or first + words > segment.shape.lane_capacity or at >= segment.shape[0]:
            return False
        start = segment.shape.lane_offset + 4 * first
        for part in parts:
            segment.map[start : start + len(part)] = part
            start += len(part)
        records, clock, base, emitted, commit, _ = self._hot
        PACK(records, at << 5, clock(), base + at, KEYFRAME, 0, 0, 0, first, words, 0)
        emitted[KEYFRAME] += 1
        self._word = first + words
        self._index = at = at + 1
        commit[0] = at
        return True

    def _define_again(self) -> None:
        """Without keyframes, each segment states its strings itself."""
        for text, string_id in self._strings.items():
            self._emit_text(DEFINE, 1, string_id, text.encode())

    def _emit_text(self, kind: int, flags: int, tenant: int, text: bytes) -> None:
        raise NotImplementedError
