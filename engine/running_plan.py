"""Plan what runs already: each decodes a token, or computes the next chunk of its prompt.

Under a sliding window a prompt's table grows chunk by chunk. Whoever needs a block and gets none
lets another give way (`VictimChooser.for_growth`), at worst itself. Beams of one search decode all
or none in a step; when they come back after a preemption, the first of them computes what they
share before the others go on.
"""

from typing import Final

from engine.forks.shared_beginning import join, shared_tokens, tokens_until_shared
from engine.forks.table_growth import TableGrowth
from engine.lineup import group_of
from engine.policy.victims import VictimChooser
from engine.pool_results import AllocationRefusal
from engine.preemption import Preemptor
from engine.runner import StepPlan
from engine.scheduling_state import SchedulingState
from engine.sequence import Sequence, SequenceStatus
from engine.step_budget import StepBudget
from kvpulse.events import WaitCause

_RUNNING: Final = SequenceStatus.RUNNING


class RunningPlanner:
    """Puts the running sequences' next tokens into a plan."""

    def __init__(self, state: SchedulingState, tables: TableGrowth, preemptor: Preemptor) -> None:
        self._state = state
        self._tables = tables
        self._preemptor = preemptor
        self._limited = state.quotas.enabled
        self._simple = not self._limited and state.span.num_groups == 1
        self._windowed = state.span.slides
        self._chooser = VictimChooser(state.config.policy, state.pool, state.quotas, state.lineup)

    def plan(self, plan: StepPlan, budget: StepBudget) -> None:
        """Add what runs to the plan, in order of rank; prefills share what decodes leave."""
        sequences, num_new_tokens = plan.sequences, plan.num_new_tokens
        running = self._state.lineup.running
        num_running, some_left = len(running), False
        for seq in running.copy():
            if some_left and seq.status is not _RUNNING:
                continue  # it gave way to one before it
            if seq.prefilling:
                n = self._chunk(seq, plan, budget)
                some_left = len(running) < num_running
                if not n:
                    continue
            elif seq.gang is not None:
                self._plan_gang(seq, plan)
                some_left = len(running) < num_running
                continue
            else:
                if seq.num_computed_tokens == seq.num_slots or seq.shares_tail:
                    there_was_room = self._reach(seq, 1, plan)
                    some_left = len(running) < num_running
                    if not there_was_room:
                        continue
                n = 1
            sequences.append(seq)
            num_new_tokens.append(n)

    def _chunk(self, seq: Sequence, plan: StepPlan, budget: StepBudget) -> int:
        """Return how many tokens of its prompt a sequence computes now; 0 for none."""
        wanted = seq.num_tokens - seq.num_computed_tokens
        if wanted <= 0 or (seq.gang is not None and _waits_for_first(seq)):
            return 0
        if seq.gang is not None and self._windowed:
            wanted = tokens_until_shared(seq) or wanted
            join(seq, seq.gang.members[0], self._state.pool)
        n = budget.take(seq, wanted)
        if seq.num_computed_tokens + n > seq.num_slots and not self._reach(seq, n, plan):
            budget.give_back(seq, n)
            return 0
        return n

    def _plan_gang(self, seq: Sequence, plan: StepPlan) -> None:
        """Let all beams decode, once the first is met; none if there is no room for one of them."""
        members = group_of(seq)
        if seq is not members[0]:
            return
        for member in members:
            full = member.num_computed_tokens == member.num_slots
            if (full or member.shares_tail) and not self._reach(member, 1, plan):
                return
        plan.sequences += members
        plan.num_new_tokens += [1] * len(members)

    def _reach(self, seq: Sequence, num_new: int, plan: StepPlan) -> bool:
        """Make room for a running sequence's next tokens; False when it had to give up its own."""
        if self._simple and num_new == 1 and seq.num_computed_tokens == seq.num_slots:
            # `TableGrowth.reach` for the case of nearly every call, at a third of its cost.
            answer = self._state.pool.allocate(seq.seq_id, 1, seq.tenant)
            if not isinstance(answer, AllocationRefusal):
                seq.block_table.block_ids += answer
                seq.num_slots += seq.block_table.block_size
                return True
        while True:
            needed = 0 if not self._limited else self._tables.num_needed(seq, num_new)
            cause = self._quota_short(seq, needed)
            pool = self._state.pool
            refusal: AllocationRefusal | None
            if cause is None:
                refusal, cause = self._tables.reach(seq, num_new, plan), WaitCause.POOL
            else:
                refusal = AllocationRefusal(needed, pool.num_free, pool.num_cached)
            if refusal is None:
                return True
            self._state.say.allocate_failed(seq, refusal, cause)
            choice = self._chooser.for_growth(seq, at_ceiling=cause is WaitCause.TENANT_QUOTA)
            self._preemptor.preempt(choice, plan)
            if not choice.beneficiary:
                return False

    def _quota_short(self, seq: Sequence, needed: int) -> WaitCause | None:
        """Return why a tenant may not have so many more blocks, None if it may or needs none."""
        quotas, pool = self._state.quotas, self._state.pool
        if not needed:
            return None
        if quotas.headroom(seq.tenant) < needed:
            return WaitCause.TENANT_QUOTA
        if pool.num_available - quotas.kept_from(seq.tenant) < needed:
            return WaitCause.POOL
        return None


def _waits_for_first(seq: Sequence) -> bool:
    """Return whether what a beam shares with the first one is not computed yet."""
    assert seq.gang is not None, "asked of beams"
    first = seq.gang.members[0]
    return seq is not first and first.num_computed_tokens < shared_tokens(seq)
