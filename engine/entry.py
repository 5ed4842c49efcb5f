"""Let waiting sequences in: in order, as far as places, tokens, blocks and quotas reach.

The queue is walked in order of rank. Whoever cannot be admitted may keep those behind waiting too
(`Standing`), so that small ones do not slip past a large one for ever. A sequence of a better tier
or priority may first take the place of running ones (`VictimChooser.for_waiting`); those do not
come back in the same pass.

A sequence is admitted when there is room for all its tokens: they are allocated at once, after what
the index of contents, or the host, has kept of them. Under a sliding window it is as much as it
ever holds at one time (`TableSpan`), and of what is kept only what the window reaches.
"""

from engine.block_table import NULL_BLOCK
from engine.forks.shared_beginning import join, leave_places, tokens_until_shared
from engine.lineup import group_of
from engine.policy.memory_pressure import MemoryPressure
from engine.policy.ranking import Ranking
from engine.policy.victims import VictimChooser
from engine.pool_results import AllocationRefusal
from engine.preemption import Preemptor
from engine.prefix_index.protocol import PrefixHit
from engine.room import POOL, QUOTA, SLOTS, PassEnd, RoomRules, Standing
from engine.runner import StepPlan
from engine.scheduling_state import SchedulingState
from engine.sequence import Sequence, SequenceStatus
from engine.step_budget import StepBudget
from engine.wait_causes import WaitJudge
from kvpulse.events import WaitCause


class Entry:
    """Admits and resumes sequences."""

    def __init__(
        self,
        state: SchedulingState,
        judge: WaitJudge,
        preemptor: Preemptor,
        ranking: Ranking,
        pressure: MemoryPressure,
    ) -> None:
        self._state = state
        self._judge = judge
        self._rules: RoomRules = judge.rules
        self._preemptor = preemptor
        self._ranking = ranking
        self._pressure = pressure
        self._chooser = VictimChooser(state.config.policy, state.pool, state.quotas, state.lineup)

    def pass_end(self, budget: StepBudget) -> PassEnd:
        """Return what is left for one more sequence."""
        lineup, most = self._state.lineup, self._state.config.max_batch
        if lineup.running:  # one that needs more places than memory allows may try it alone
            most = min(most, self._pressure.max_running)
        free = min(most - lineup.num_places_taken, lineup.most_places_asked)
        return PassEnd(free, budget.spent(), lineup.only_root)

    def admit_waiting(self, plan: StepPlan, budget: StepBudget) -> None:
        """Walk the queue and admit whom there is room for; add their tokens to the plan."""
        waiting, quotas = self._state.lineup.waiting, self._state.quotas
        back_later = self._preemptor.this_pass
        back_later.clear()
        standing = Standing(quotas)
        index = 0
        while index < len(waiting) and budget.left > 0:
            seq = waiting[index]
            if seq.tenant in standing.for_quota or seq.seq_id in back_later:
                index += 1
            elif self._admit(seq, plan, standing, budget):
                self._plan(seq, plan, budget)
            elif standing.for_places or (standing.for_pool and not quotas.enabled):
                return
            else:
                index += len(group_of(seq))

    def _admit(self, seq: Sequence, plan: StepPlan, standing: Standing, budget: StepBudget) -> bool:
        """Let a sequence run, with its gang, if nothing forbids it or others give way."""
        end = self.pass_end(budget)
        level, hit = self._judge.known_level(seq), None
        if level is None or not self._rules.obstacles(seq, level, end):
            level, hit = self._judge.look_up(seq)
        flags = self._rules.obstacles(seq, level, end)
        all_flags, _ = standing.behind(seq, level, flags)
        first = flags == all_flags and not (standing.for_places or standing.for_pool)
        if flags and first and self._make_way(seq, level, flags, plan, budget):
            level, hit = self._judge.look_up(seq)  # what was shared may only be cached now
            all_flags = flags = self._rules.obstacles(seq, level, self.pass_end(budget))
        if not all_flags and hit is not None:
            self._start_group(seq, hit, plan)
            return True
        standing.note(seq, all_flags)
        if flags & (POOL | QUOTA) and not flags & SLOTS and not seq.refusal_recorded:
            self._record_refusal(seq, level, flags)
        return False

    def _make_way(
        self, seq: Sequence, level: int, flags: int, plan: StepPlan, budget: StepBudget
    ) -> bool:
        """Let running sequences that it outranks give way; False if nobody does."""
        lineup = self._state.lineup
        running = lineup.running
        if not running or running[-1].rank_ns <= seq.rank_ns or flags & ~(POOL | QUOTA | SLOTS):
            return False
        end = self.pass_end(budget)
        blocks = self._rules.blocks_asked(seq, level, end) - self._state.pool.num_available
        if flags & QUOTA:
            blocks = max(blocks, level - self._state.quotas.headroom(seq.tenant))
        most = min(self._state.config.max_batch, self._pressure.max_running)
        places = sum(member.num_slots_reserved for member in group_of(seq))
        choices = self._chooser.for_waiting(
            seq,
            blocks=blocks,
            places=lineup.num_places_taken + places - most,
            at_ceiling=bool(flags & QUOTA),
        )
        for choice in choices:
            for member in group_of(choice.victim):
                self._preemptor.this_pass.add(member.seq_id)
                if member in plan.sequences:
                    planned = plan.num_new_tokens[plan.sequences.index(member)]
                    budget.give_back(member, planned)
            self._preemptor.preempt(choice, plan)
        return bool(choices)

    def _plan(self, seq: Sequence, plan: StepPlan, budget: StepBudget) -> None:
        """Let whoever was just admitted run its first chunk in this step."""
        for member in group_of(seq):
            if member is not seq and member.num_shared_blocks:
                continue  # what it shares with the first one is computed first
            wanted = member.num_tokens - member.num_computed_tokens
            if self._state.span.slides:
                wanted = tokens_until_shared(member) or wanted
            n = budget.take(member, wanted)
            if n:
                plan.sequences.append(member)
                plan.num_new_tokens.append(n)

    def _start_group(self, seq: Sequence, hit: PrefixHit, plan: StepPlan) -> None:
        group = group_of(seq)
        leader = group[0]
        for member in group:
            self._begin(member)
            if member is leader and member.status is SequenceStatus.SWAPPED:
                self._swap_in(member, plan)
            elif member is leader:
                self._start(member, hit.block_ids)
            elif self._state.span.slides:
                self._start_behind(member, leader)
            else:
                shared = leader.block_table.block_ids[: member.num_shared_blocks]
                self._start(member, shared)

    def _begin(self, seq: Sequence) -> None:
        """Move a sequence from the queue into the batch."""
        state, lineup = self._state, self._state.lineup
        lineup.waiting.remove(seq)
        self._judge.leave(seq)
        if not seq.ran:
            seq.ran = True
            self._ranking.begin(seq)
        seq.protected_until = seq.num_output_tokens + state.config.policy.protected_tokens
        seq.since_ns = state.clock.now_ns()

    def _start(self, seq: Sequence, found: list[int]) -> None:
        """Admit or resume a sequence: first what is kept of it, then new blocks for the rest."""
        span, table = self._state.span, seq.block_table
        num_hit = len(found) // span.num_groups
        self._run(seq, num_hit)
        table.block_ids = span.seen(found, num_hit * span.block_size)
        table.num_null = table.block_ids.count(NULL_BLOCK)
        if table.held_ids:
            self._state.pool.share(seq.seq_id, table.held_ids, [], seq.tenant)
        self._allocate(seq)

    def _start_behind(self, seq: Sequence, leader: Sequence) -> None:
        """Resume a beam, under a window, behind the first one, which computes what they share."""
        self._run(seq, seq.num_shared_blocks)
        leave_places(seq)
        self._allocate(seq)
        join(seq, leader, self._state.pool)

    def _run(self, seq: Sequence, num_hit: int) -> None:
        """State that a sequence runs, with so many leading blocks there already."""
        state, say = self._state, self._state.say
        hit_tokens = num_hit * state.config.block_size
        resumed = seq.status is SequenceStatus.PREEMPTED
        if resumed:
            say.resume(seq, hit_tokens)
        else:
            say.admit(seq)
        seq.status = SequenceStatus.RUNNING
        seq.num_computed_tokens = seq.computed_from = hit_tokens
        state.lineup.add_running(seq)
        if state.index.enabled:
            say.prefix_hit(seq, hit_tokens, resumed=resumed)
        state.index.begin(seq, num_hit)

    def _allocate(self, seq: Sequence) -> None:
        """Give a sequence that begins to run the blocks that its table lacks."""
        state, table = self._state, seq.block_table
        end = state.span.end(seq.num_computed_tokens, seq.num_tokens)
        answer = state.pool.allocate(seq.seq_id, end - len(table), seq.tenant)
        assert not isinstance(answer, AllocationRefusal), "room was counted before"
        table.block_ids += answer
        seq.num_slots = table.num_slots

    def _swap_in(self, seq: Sequence, plan: StepPlan) -> None:
        """Resume a sequence whose KV is in the host; nothing is computed again."""
        state = self._state
        assert state.swapper is not None, "it was swapped out"
        state.say.resume(seq, seq.num_computed_tokens)
        seq.status = SequenceStatus.RUNNING
        state.lineup.add_running(seq)
        refusal = state.swapper.swap_in(seq, plan)
        assert refusal is None, "room was counted before"

    def _record_refusal(self, seq: Sequence, level: int, flags: int) -> None:
        pool = self._state.pool
        refusal = AllocationRefusal(level, pool.num_free, pool.num_cached)
        cause = WaitCause.TENANT_QUOTA if flags & QUOTA else WaitCause.POOL
        self._state.say.allocate_failed(seq, refusal, cause)
        seq.refusal_recorded = True
