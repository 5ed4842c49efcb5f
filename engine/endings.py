"""How sequences leave: ended, rejected out of the queue, out of time, or never to fit again.

What ends without a token of its own (`notices`) is told by the next step or tick. All samples of a
request end together then; the reason for a rejection is kept until somebody takes it.
"""

from engine.admission import Rejection
from engine.faults.protocol import FaultInjector, NoFaults
from engine.policy.deadlines import Deadlines
from engine.policy.ranking import Ranking
from engine.runner import NO_TOKEN
from engine.scheduling_state import SchedulingState
from engine.sequence import Sequence, SequenceStatus
from engine.token_event import TokenEvent
from engine.wait_causes import NO_HIT, WaitJudge, level_of
from kvpulse.events import FinishReason, RejectReason, WaitCause

_POOL_CAUSES = (WaitCause.POOL, WaitCause.POOL_BEHIND)


class Endings:
    """Takes sequences out of queue and batch for good.

    Attributes:
        notices: Ends that no step's tokens tell of.
        rejections: Why requests were rejected out of the queue, by number.
        leaked: Blocks that ended sequences kept (a fault).
        leaked_empty_slots: Token slots in those blocks that hold nothing.
    """

    def __init__(
        self,
        state: SchedulingState,
        judge: WaitJudge,
        ranking: Ranking,
        deadlines: Deadlines,
        faults: FaultInjector,
    ) -> None:
        self.notices: list[TokenEvent] = []
        self.rejections: dict[int, Rejection] = {}
        self.leaked: list[int] = []
        self.leaked_empty_slots = 0
        self._state = state
        self._judge = judge
        self._ranking = ranking
        self._deadlines = deadlines
        self._faults = faults
        self._may_misbehave = type(faults) is not NoFaults

    def end(self, seq: Sequence, reason: FinishReason) -> None:
        """Take a live sequence out, wherever it is; its blocks go back first."""
        self._leave(seq)
        self._give_back(seq, reason)
        self._state.say.finish(seq, reason)
        self._forget(seq)

    def end_request(self, root_id: int, reason: FinishReason) -> None:
        """End every live sequence of a request, and tell of it."""
        for seq in self.sequences_of(root_id):
            self.end(seq, reason)
        self.notices.append(TokenEvent(root_id, NO_TOKEN, reason, root_id))

    def reject(self, seq: Sequence, rejection: Rejection) -> None:
        """Refuse a request that was taken, and of which no token was produced."""
        self._leave(seq)
        self._give_back(seq, FinishReason.REJECTED)
        self._state.say.reject(
            seq.seq_id,
            rejection.reason,
            needed=rejection.needed,
            limit=rejection.limit,
            tenant=seq.tenant,
        )
        self._forget(seq)
        self.rejections[seq.root_id] = rejection
        self.notices.append(TokenEvent(seq.seq_id, NO_TOKEN, FinishReason.REJECTED, seq.root_id))

    def sequences_of(self, root_id: int) -> list[Sequence]:
        """Return the live sequences of a request."""
        lineup = self._state.lineup
        root = lineup.live.get(root_id)
        first = [root] if root is not None and not root.parent_id else []
        return first + lineup.forks.get(root_id, [])

    def expire(self, now_ns: int) -> None:
        """End whatever has run out of time."""
        for deadline in self._deadlines.due(now_ns):
            seqs = self.sequences_of(deadline.root_id)
            if not seqs or (deadline.in_queue and seqs[0].ran):
                continue
            if seqs[0].ran:
                self.end_request(deadline.root_id, FinishReason.TIMEOUT)
            else:
                self.reject(seqs[0], self._too_late(seqs[0], now_ns, deadline.in_queue))

    def out_of_memory(self, seq: Sequence) -> None:
        """End a request whose step needs more memory than there is, alone as it is."""
        if seq.first_token_ns:
            self.end_request(seq.root_id, FinishReason.ERROR)
            return
        message = "the model ran out of memory in a step of this request alone"
        self.reject(seq, Rejection(RejectReason.OUT_OF_MEMORY, 0, 0, message))

    def end_never_fitting(self) -> None:
        """End who waits for more blocks than there can be, as after the pool has shrunk."""
        lineup = self._state.lineup
        for seq in list(lineup.waiting):
            if seq.seq_id not in lineup.live:
                continue  # it ended with another of its request
            limit = self._state.quotas.most_ever(seq.tenant)
            if seq.ran:
                if self._least_level(seq) > limit:
                    self.end_request(seq.root_id, FinishReason.ERROR)
                continue
            needed = self._state.span.most_of_request(
                num_prompt_tokens=seq.num_prompt_tokens,
                max_num_tokens=seq.max_num_tokens,
                num_sequences=seq.sampling.num_sequences,
            )
            if needed > limit:
                message = f"the request may need {needed} blocks; there are {limit} for it now"
                self.reject(seq, Rejection(RejectReason.EXCEEDS_POOL, needed, limit, message))

    def _least_level(self, seq: Sequence) -> int:
        """Return the blocks that a preempted sequence takes at least when nobody else has any."""
        if seq.status is SequenceStatus.SWAPPED:  # what slid out of a window stays away
            return self._judge.look_up(seq)[0]
        return level_of(seq, NO_HIT, self._state)

    def _too_late(self, seq: Sequence, now_ns: int, in_queue: bool) -> Rejection:
        waited = f"the request waited {(now_ns - seq.arrived_ns) / 1e9:.3f} s"
        if in_queue and seq.wait_cause in _POOL_CAUSES:
            available = self._state.pool.num_available
            message = f"{waited} for {seq.wait_level} blocks; {available} can be taken"
            return Rejection(RejectReason.POOL_TIMEOUT, seq.wait_level, available, message)
        message = f"{waited} and did not begin to run within its deadline"
        return Rejection(RejectReason.DEADLINE, 0, 0, message)

    def _leave(self, seq: Sequence) -> None:
        waits = seq.status is not SequenceStatus.RUNNING
        self._state.lineup.take_out(seq)
        if waits:
            self._judge.leave(seq)

    def _forget(self, seq: Sequence) -> None:
        seq.status = SequenceStatus.FINISHED
        lineup = self._state.lineup
        del lineup.live[seq.seq_id]
        if seq.parent_id:
            forks = lineup.forks[seq.root_id]
            forks.remove(seq)
            if not forks:
                del lineup.forks[seq.root_id]
        self._ranking.end(seq)

    def _give_back(self, seq: Sequence, reason: FinishReason) -> None:
        """Free a sequence's blocks, those in the host too."""
        pool, table = self._state.pool, seq.block_table
        if seq.host_block_ids:
            assert self._state.swapper is not None, "it was swapped out"
            self._state.swapper.drop(seq)
        if not table.block_ids:
            return
        if not self._may_misbehave:
            pool.free(seq.seq_id, table.give_up(), seq.tenant, seq.tier)
            return
        lost = self._faults.kept_at_end(seq.seq_id, table.held_ids, reason)
        if lost:
            self._lose(seq, lost)
        freed = list(table.held_ids)
        pool.free(seq.seq_id, table.give_up(), seq.tenant, seq.tier)
        unheld = [block_id for block_id in freed if not pool.counts[block_id]]
        twice = self._faults.freed_twice(seq.seq_id, unheld, reason)
        if twice:
            pool.free(seq.seq_id, list(twice), seq.tenant, seq.tier)

    def _lose(self, seq: Sequence, lost: list[int]) -> None:
        """Let an ending sequence forget some of its blocks without freeing them (a fault)."""
        table, size = seq.block_table, seq.block_table.block_size
        groups = table.num_groups
        missing, lost_before = set(lost), set(self.leaked)
        for index, block_id in enumerate(table.block_ids):
            if block_id in missing and block_id not in lost_before:
                filled = min(max(seq.num_computed_tokens - index // groups * size, 0), size)
                self.leaked_empty_slots += size - filled
        self.leaked += lost
        table.block_ids[:] = [b for b in table.block_ids if b not in missing]
