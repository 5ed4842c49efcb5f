"""Say why each waiting sequence waits, after each pass of the scheduler.

Each sequence is judged **alone against the state at the end of the pass**: would it be admitted if
it were the only one waiting? What forbids it are its flags, the first of them its cause.
`pool_behind` is the flag of one that would fit alone but stands behind one that waits for the pool.

A change of cause or blocker is recorded, with the flags of that moment. Flags below an unchanged
cause are kept up to date on the sequence and in keyframes, but make no record: the budget alone
flips with nearly every prompt, for the whole queue at once.

What a sequence would take from the pool is its blocks less those of its kept beginning that are
active anyway: its *level*. The level changes only when a block of that beginning changes state, and
the pool says so (`BlockPool.watchers`); the pool's own level decides the rest. So a pass that
changed nothing costs a few comparisons, however long the queue is.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from engine.accounts import Tally
from engine.block_pool import BlockPool
from engine.block_table import blocks_for
from engine.clock import Clock
from engine.prefix_cache import PrefixCache, PrefixHit
from engine.sequence import NEVER, Sequence
from kvpulse.events import WaitCause, WaitFlag

if TYPE_CHECKING:
    from kvpulse.recorder import Recorder

_SLOTS: Final = int(WaitFlag.BATCH_SLOTS)
_POOL: Final = int(WaitFlag.POOL)
_BEHIND: Final = int(WaitFlag.POOL_BEHIND)
_BUDGET: Final = int(WaitFlag.TOKEN_BUDGET)
_BUSY: Final = int(WaitFlag.ENGINE_BUSY)


def first_cause(flags: int) -> WaitCause:
    """Return the first cause among the flags."""
    return WaitCause((flags & -flags).bit_length())


class PassEnd(NamedTuple):
    """What is left at the end of a pass, for one more sequence."""

    slots_full: bool
    budget_spent: bool
    watermark_blocks: int


class WaitJudge:
    """Keeps the verdict of every waiting sequence, and records each change of cause or blocker."""

    def __init__(
        self,
        pool: BlockPool,
        cache: PrefixCache,
        *,
        tally: Tally,
        clock: Clock,
        recorder: "Recorder | None" = None,
    ) -> None:
        self.num_waiting_for_pool = 0
        self._pool = pool
        self._cache = cache
        self._tally = tally
        self._clock = clock
        self._recorder = recorder
        # The last full judgement holds while nothing below changes.
        self._end: PassEnd | None = None
        self._lowest_refused = NEVER
        self._highest_fitting = 0

    def enter(self, seq: Sequence, now_ns: int) -> None:
        """Let a sequence wait; until the next pass judges it, the engine is busy."""
        seq.wait_cause = WaitCause.ENGINE_BUSY
        seq.wait_flags = 0
        seq.wait_blocker = 0
        seq.since_ns = now_ns
        seq.refusal_recorded = False
        self._end = None

    def leave(self, seq: Sequence) -> None:
        """Forget a sequence that waits no more."""
        self._unwatch(seq)
        if seq.wait_cause in (WaitCause.POOL, WaitCause.POOL_BEHIND):
            self.num_waiting_for_pool -= 1
        seq.wait_flags = 0
        self._end = None

    def known_level(self, seq: Sequence) -> int | None:
        """Return the blocks the sequence would take, if that is known without asking the cache."""
        if seq.wait_watched is None or seq.seq_id in self._pool.touched:
            return None
        return seq.wait_level

    def judge(self, waiting: Iterable[Sequence], end: PassEnd) -> None:
        """Judge every waiting sequence against the end of the pass."""
        available = self._pool.num_available
        if (
            end == self._end
            and not self._pool.touched
            and self._highest_fitting <= available < self._lowest_refused
        ):
            return
        self._judge_all(waiting, end, available)
        self._pool.touched.clear()
        self._end = end

    def _judge_all(self, waiting: Iterable[Sequence], end: PassEnd, available: int) -> None:
        shared = (_SLOTS if end.slots_full else 0) | (_BUDGET if end.budget_spent else 0)
        lowest_refused, highest_fitting, blocker = NEVER, 0, 0
        for seq in waiting:
            level = self.known_level(seq)
            if level is None:
                level = self._measure(seq)
            level += end.watermark_blocks
            if level > available:
                flags = shared | _POOL
                lowest_refused = min(lowest_refused, level)
                behind = 0
                blocker = blocker or seq.seq_id
            else:
                flags = shared | _BEHIND if blocker else shared
                highest_fitting = max(highest_fitting, level)
                behind = 0 if end.slots_full else blocker  # named when it is the cause
            flags = flags or _BUSY
            if flags != seq.wait_flags or behind != seq.wait_blocker:
                cause = first_cause(flags)
                if cause != seq.wait_cause or behind != seq.wait_blocker:
                    self._change(seq, cause, flags, behind)
                seq.wait_flags = flags
        self._lowest_refused, self._highest_fitting = lowest_refused, highest_fitting

    def _change(self, seq: Sequence, cause: WaitCause, flags: int, blocker: int) -> None:
        if self._recorder is not None:
            self._recorder.wait(seq.seq_id, cause, flags, blocker, seq.tenant)
        self._tally.waits += 1
        pool_causes = (WaitCause.POOL, WaitCause.POOL_BEHIND)
        self.num_waiting_for_pool += (cause in pool_causes) - (seq.wait_cause in pool_causes)
        if cause != seq.wait_cause:
            seq.since_ns = self._clock.now_ns()
        seq.wait_cause, seq.wait_blocker = cause, blocker

    def _measure(self, seq: Sequence) -> int:
        """Ask the cache what the sequence would take, and watch what that depends on."""
        self._unwatch(seq)
        hit = self._cache.lookup(seq)
        # The hit itself, and the first miss after it: nothing further can change the level.
        watched = hit.hashes[: len(hit.block_ids) + 1]
        watchers = self._pool.watchers
        for content_hash in watched:
            watchers.setdefault(content_hash, set()).add(seq.seq_id)
        seq.wait_watched = watched
        seq.wait_level = level_of(seq, hit)
        return seq.wait_level

    def _unwatch(self, seq: Sequence) -> None:
        watchers = self._pool.watchers
        for content_hash in seq.wait_watched or ():
            group = watchers[content_hash]
            group.discard(seq.seq_id)
            if not group:
                del watchers[content_hash]
        seq.wait_watched = None
        self._pool.touched.discard(seq.seq_id)


def level_of(seq: Sequence, hit: PrefixHit) -> int:
    """Return how many blocks the sequence would take out of free and cached ones."""
    return blocks_for(seq.num_tokens, seq.block_table.block_size) - hit.num_active
