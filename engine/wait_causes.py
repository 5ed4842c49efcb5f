"""Say why each waiting sequence waits, after each pass of the scheduler.

Each sequence is judged **alone against the state at the end of the pass**: would it be admitted if
it were the only one waiting? What forbids it are its flags (`RoomRules.obstacles`), the first of
them its cause. One that would fit alone may stand behind one that waits (`Standing`): for blocks
(`pool_behind`), for places of the batch or for its tenant's quota (the cause of its blocker then).
That one is named. Beams are admitted together and so are judged together.

A change of cause or blocker is recorded, with the flags of that moment. Flags below an unchanged
cause are kept up to date on the sequence and in keyframes, but make no record: the budget alone
flips with nearly every prompt, for the whole queue at once.

What a sequence would take from the pool is its blocks less those of its kept beginning that are
active anyway: its *level*. The level changes only when a block of that beginning changes state, and
the pool says so (`BlockPool.watchers`); the pool's own level decides the rest. So a pass that
changed nothing costs a few comparisons, however long the queue is.
"""

from collections.abc import Sequence as Seq

from engine.block_table import held_of
from engine.lineup import group_of
from engine.prefix_index.protocol import PrefixHit
from engine.room import BEHIND, BUDGET, BUSY, POOL, SLOTS, PassEnd, RoomRules, Standing
from engine.scheduling_state import SchedulingState
from engine.sequence import NEVER, Sequence, SequenceStatus
from kvpulse.events import WaitCause

NO_HIT = PrefixHit([], [], 0)
_POOL_CAUSES = (WaitCause.POOL, WaitCause.POOL_BEHIND)


def first_cause(flags: int) -> WaitCause:
    """Return the first cause among the flags."""
    return WaitCause((flags & -flags).bit_length())


class WaitJudge:
    """Keeps the verdict of every waiting sequence, and records each change of cause or blocker."""

    def __init__(self, state: SchedulingState) -> None:
        self.num_waiting_for_pool = 0
        self.rules = RoomRules(state.config, state.pool, state.quotas)
        self._state = state
        self._pool = state.pool
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
        if seq.wait_cause in _POOL_CAUSES:
            self.num_waiting_for_pool -= 1
        seq.wait_cause = WaitCause.ENGINE_BUSY
        seq.wait_flags = 0
        self._end = None

    def known_level(self, seq: Sequence) -> int | None:
        """Return the blocks a sequence would take, if that is known without asking the index."""
        if seq.wait_watched is None or seq.seq_id in self._pool.touched:
            return None
        return seq.wait_level

    def look_up(self, seq: Sequence) -> tuple[int, PrefixHit]:
        """Return the blocks a sequence and its gang would take, and what the index has of it."""
        if seq.status is SequenceStatus.SWAPPED:
            assert self._state.swapper is not None, "it was swapped out"
            return self._state.swapper.level(seq), NO_HIT
        hit = self._within_shared(seq, self._state.index.lookup(seq))
        return level_of(seq, hit, self._state), hit

    def _within_shared(self, seq: Sequence, hit: PrefixHit) -> PrefixHit:
        """Cut the hit of a gang, under a window, where its beams begin to differ.

        The first of them must hold what the others will share when it is computed up to there.
        """
        span = self._state.span
        if not span.slides or len(group_of(seq)) == 1:
            return hit
        return hit._replace(block_ids=hit.block_ids[: seq.num_shared_blocks * span.num_groups])

    def judge(self, waiting: Seq[Sequence], end: PassEnd) -> None:
        """Judge every waiting sequence against the end of the pass."""
        available = self._pool.num_available
        if (
            end == self._end
            and not self._pool.touched
            and self._highest_fitting <= available < self._lowest_refused
            and not self.rules.quotas.enabled
        ):
            return
        if self.rules.quotas.enabled or self._state.lineup.most_places_asked > 1:
            self._judge_all(waiting, end, available)
        else:
            self._judge_plain(waiting, end, available)
        self._pool.touched.clear()
        self._end = end

    def _judge_all(self, waiting: Seq[Sequence], end: PassEnd, available: int) -> None:
        self._lowest_refused, self._highest_fitting = NEVER, 0
        standing, rules = Standing(self.rules.quotas), self.rules
        index = 0
        while index < len(waiting):
            seq = waiting[index]
            level = self.known_level(seq)
            if level is None:
                level = self._measure(seq)
            asked = rules.blocks_asked(seq, level, end)
            if asked > available:
                self._lowest_refused = min(self._lowest_refused, asked)
            else:
                self._highest_fitting = max(self._highest_fitting, asked)
            flags, blocker = standing.behind(seq, level, rules.obstacles(seq, level, end))
            standing.note(seq, flags)
            if seq.gang is None:
                self._find(seq, flags or BUSY, blocker)
                index += 1
            else:
                for member in seq.gang.members:
                    self._find(member, flags or BUSY, blocker)
                index += len(seq.gang.members)

    def _judge_plain(self, waiting: Seq[Sequence], end: PassEnd, available: int) -> None:
        """Do as `_judge_all`, at a third of its cost, where all take one place and no quota is set.

        Then `Standing` comes down to the first one that waits for blocks.
        """
        watermarks = self.rules.watermarks(end)
        places = SLOTS if end.places_free < 1 else 0
        shared = [places | (BUDGET if spent else 0) for spent in end.spent]
        lowest_refused, highest_fitting, blocker = NEVER, 0, 0
        touched = self._pool.touched
        for seq in waiting:
            level = seq.wait_level
            if seq.wait_watched is None or seq.seq_id in touched:
                level = self._measure(seq)
            tier = seq.tier
            level += watermarks[tier]
            flags, behind = shared[tier], 0
            if level > available:
                flags |= POOL
                lowest_refused = min(lowest_refused, level)
                blocker = blocker or seq.seq_id
            else:
                highest_fitting = max(highest_fitting, level)
                if blocker:
                    flags |= BEHIND
                    behind = 0 if places else blocker  # named when it is the cause
            flags = flags or BUSY
            if flags != seq.wait_flags or behind != seq.wait_blocker:
                self._find(seq, flags, behind)
        self._lowest_refused, self._highest_fitting = lowest_refused, highest_fitting

    def _find(self, seq: Sequence, flags: int, blocker: int) -> None:
        """Give a sequence its verdict."""
        if flags == seq.wait_flags and blocker == seq.wait_blocker:
            return
        cause = first_cause(flags)
        if cause != seq.wait_cause or blocker != seq.wait_blocker:
            self._change(seq, cause, flags, blocker)
        seq.wait_flags = flags

    def _change(self, seq: Sequence, cause: WaitCause, flags: int, blocker: int) -> None:
        self._state.say.wait(seq, cause, flags, blocker)
        self.num_waiting_for_pool += (cause in _POOL_CAUSES) - (seq.wait_cause in _POOL_CAUSES)
        if cause != seq.wait_cause:
            seq.since_ns = self._state.clock.now_ns()
        seq.wait_cause, seq.wait_blocker = cause, blocker

    def _measure(self, seq: Sequence) -> int:
        """Ask the index what the sequence would take, and watch what that depends on."""
        self._unwatch(seq)
        seq.wait_level, hit = self.look_up(seq)
        # The hit itself, and the first miss after it: nothing further can change the level.
        watched = hit.hashes
        if self._state.span.num_groups == 1:
            watched = watched[: len(hit.block_ids) + 1]
        watchers = self._pool.watchers
        for content_hash in watched:
            watchers.setdefault(content_hash, set()).add(seq.seq_id)
        seq.wait_watched = watched
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


def level_of(seq: Sequence, hit: PrefixHit, state: SchedulingState) -> int:
    """Return how many blocks a sequence, with its gang, would take of free and cached ones.

    The others of a gang share its leading blocks, and take the rest for themselves.
    """
    span, num_active = state.span, hit.num_active
    computed = len(hit.block_ids) // span.num_groups * span.block_size
    if span.slides:
        held = held_of(span.seen(hit.block_ids, computed))
        num_active = sum(map(bool, map(state.pool.counts.__getitem__, held)))
    level = span.num_needed(computed, seq.num_tokens) - num_active
    for member in group_of(seq)[1:]:
        shared = member.num_shared_blocks
        tokens = shared * span.block_size
        of_others = shared * span.num_groups - span.num_behind(tokens)
        level += span.num_needed(tokens, member.num_tokens) - of_others
    return level
