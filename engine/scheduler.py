"""Choose each step's work: continuous batching with chunked prefill, in order of rank.

One pass decides one step. Running sequences come first, in order of rank (arrival, put off by
priority, tier and fairness: `engine.policy.ranking`): each decodes one token or runs the next chunk
of its prompt, within the token budget; decodes always fit. A sequence that needs a block when none
is left lets the last in order give way (`engine.policy.victims`), which waits in the queue again.
Then waiting sequences are admitted in order (`engine.entry`), while there is a place, budget, and
room for **all** their tokens, or all that a sliding window ever needs of them, above the watermark.
Without others running there is no watermark.

The parts: `lineup` (who waits, who runs), `running_plan`, `entry`, `preemption`, `endings`,
`wait_causes`; what they decide by lies in `engine/policy/`.
"""

from typing import TYPE_CHECKING

from engine.accounts import Tally
from engine.block_pool import BlockPool
from engine.clock import Clock
from engine.config import EngineConfig
from engine.endings import Endings
from engine.entry import Entry
from engine.errors import AccountError
from engine.faults.protocol import FaultInjector, NoFaults
from engine.forks.table_growth import TableGrowth
from engine.lineup import Lineup, group_of
from engine.policy.deadlines import Deadlines
from engine.policy.memory_pressure import MemoryPressure
from engine.policy.ranking import Ranking, order_key
from engine.policy.tenant_quotas import TenantQuotas
from engine.policy.victims import VictimChoice, Why
from engine.preemption import Preemption, Preemptor, unplan
from engine.prefix_index.protocol import PrefixIndex
from engine.runner import StepPlan
from engine.running_plan import RunningPlanner
from engine.scheduling_state import SchedulingState
from engine.sequence import Sequence, SequenceStatus
from engine.sequence_numbers import SequenceNumbers
from engine.statements import Statements
from engine.step_budget import StepBudget
from engine.swapping import Swapper
from engine.table_span import TableSpan
from engine.wait_causes import WaitJudge
from kvpulse.events import FinishReason

if TYPE_CHECKING:
    from kvpulse.recorder import Recorder


class Scheduler:
    """The queue, the running batch, and every act that moves a sequence between them.

    Attributes:
        tables: Makes room for what a sequence writes next.
        judge: Says why each waiting sequence waits.
        quotas: What each tenant may take.
        endings: How sequences leave.
        span: Which part of a table holds blocks.
        swapper: Moves sequences to the host and back; None without host blocks.
        pressure: The limits of a step while memory is short.
    """

    def __init__(
        self,
        config: EngineConfig,
        pool: BlockPool,
        index: PrefixIndex,
        *,
        clock: Clock,
        recorder: "Recorder | None" = None,
        faults: FaultInjector | None = None,
        host_pool: BlockPool | None = None,
        windows: tuple[int | None, ...] = (None,),
    ) -> None:
        self.numbers = SequenceNumbers()
        self.tables = TableGrowth(pool, recorder=recorder)
        self.quotas = TenantQuotas(config.policy, pool)
        self.span = TableSpan(config.block_size, windows, config.token_budget)
        self.swapper: Swapper | None = None
        if host_pool is not None:
            self.swapper = Swapper(pool, host_pool, self.span, recorder, index)
        self.pressure = MemoryPressure(config)
        self.ranking = Ranking(config.policy)
        self._say = Statements(recorder=recorder)
        self._lineup = Lineup()
        state = SchedulingState(
            config,
            pool,
            index,
            self._lineup,
            self.quotas,
            self._say,
            clock,
            self.span,
            self.swapper,
        )
        self.judge = WaitJudge(state)
        self._deadlines = Deadlines(config.policy)
        self._faults = faults or NoFaults()
        self.endings = Endings(state, self.judge, self.ranking, self._deadlines, self._faults)
        self._preemptor = Preemptor(state, self.judge)
        self._planner = RunningPlanner(state, self.tables, self._preemptor)
        self._entry = Entry(state, self.judge, self._preemptor, self.ranking, self.pressure)
        self._config = config
        self._pool = pool
        self._clock = clock
        self._blocks_seen = pool.total_blocks

    @property
    def waiting(self) -> list[Sequence]:
        """Return the queue, the next to be admitted first."""
        return self._lineup.waiting

    @property
    def running(self) -> list[Sequence]:
        """Return the batch, in order of rank."""
        return self._lineup.running

    @property
    def live(self) -> dict[int, Sequence]:
        """Return everyone who waits or runs, by number."""
        return self._lineup.live

    @property
    def tally(self) -> Tally:
        """Return the acts counted so far."""
        return self._say.tally

    @property
    def say(self) -> Statements:
        """Return who counts and records the acts."""
        return self._say

    @property
    def num_decoding(self) -> int:
        """Return how many of the batch are past their prompt."""
        return self._lineup.num_decoding

    @num_decoding.setter
    def num_decoding(self, value: int) -> None:
        self._lineup.num_decoding = value

    @property
    def latest_preemptions(self) -> list[Preemption]:
        """Return who gave way lately, for whom, why and at what cost; the newest last."""
        return list(self._preemptor.latest)

    @property
    def next_deadline_ns(self) -> int | None:
        """Return when the next sequence runs out of time, if any may."""
        return self._deadlines.next_ns

    def enqueue(self, seq: Sequence) -> None:
        """Let a sequence that just arrived wait its turn."""
        seq.arrived_ns = self._clock.now_ns()
        self.ranking.place(seq, alone=not self.live)
        self._deadlines.add(seq)
        self.live[seq.seq_id] = seq
        self.judge.enter(seq, seq.arrived_ns)
        self._lineup.add_waiting(seq)

    def adopt(self, child: Sequence) -> None:
        """Let a sequence that just split off a running one run beside it, decoding.

        It stands behind the last running sequence of its request. Its `fork` is stated before.
        """
        root = self.live.get(child.root_id)
        if root is not None and root.num_slots_reserved > 1:
            root.num_slots_reserved -= 1  # the place that was kept for it
        child.status = SequenceStatus.RUNNING
        child.arrived_ns = child.since_ns = self._clock.now_ns()
        child.prefilling = False
        child.ran = True
        self._lineup.add_running(child)
        self.live[child.seq_id] = child
        self._lineup.forks.setdefault(child.root_id, []).append(child)
        self.num_decoding += 1
        self.tally.forks += 1

    def run_pass(self, step: int) -> StepPlan:
        """Decide one step, and say of everyone who still waits why."""
        plan = StepPlan(step)
        if self.pressure.lowered:
            self._shed(plan)
        self._plan_running(plan)
        if self._lineup.waiting:
            self._end_never_fitting(plan)
            budget = self._admit_waiting(plan)
            self.judge.judge(self._lineup.waiting, self._entry.pass_end(budget))
        return plan

    def end(self, seq: Sequence, reason: FinishReason) -> None:
        """Take a live sequence out, wherever it is; its blocks go back first."""
        self.endings.end(seq, reason)

    def expire(self, now_ns: int) -> None:
        """End whatever has run out of time."""
        next_ns = self._deadlines.next_ns
        if next_ns is not None and next_ns <= now_ns:
            self.endings.expire(now_ns)

    def step_failed(self, plan: StepPlan) -> None:
        """Do with less from now on: the model ran out of memory in a step, which did nothing.

        A request that cannot do with less is ended.
        """
        groups = {seq.root_id for seq in plan.sequences}
        lowered = self.pressure.failed(
            num_tokens=sum(plan.num_new_tokens), num_sequences=len(plan.sequences)
        )
        if not lowered or (len(groups) == 1 and plan.sequences[0].gang is not None):
            self.endings.out_of_memory(plan.sequences[0])

    def check(self) -> None:
        """Recount queue and batch, and raise `AccountError` at the first thing that disagrees."""
        for line in (self.running, self.waiting):
            order = [order_key(seq) for seq in line]
            if order != sorted(order):
                raise AccountError(f"out of order of rank: {line}")
        if {seq.seq_id for seq in (*self.running, *self.waiting)} != set(self.live):
            raise AccountError(f"running and waiting are not the live ones: {set(self.live)}")
        if self.num_decoding != sum(not seq.prefilling for seq in self.running):
            raise AccountError(f"{self.num_decoding} counted as decoding in {self.running}")
        for seq in self.running:
            if not seq.num_computed_tokens <= seq.num_slots == seq.block_table.num_slots:
                raise AccountError(f"{seq} has tokens outside its blocks")
            if seq.status is not SequenceStatus.RUNNING or seq.host_block_ids:
                raise AccountError(f"{seq} runs, and is swapped out or said to wait")
        for seq in self.waiting:
            if seq.block_table.block_ids:
                raise AccountError(f"{seq} waits and holds blocks")
            if len({member.status for member in group_of(seq)}) > 1:
                raise AccountError(f"of the gang of {seq} some wait and some run")

    def _plan_running(self, plan: StepPlan) -> None:
        budget = StepBudget(self.pressure.token_budget, self._config.policy.tiers)
        budget.keep_for_decodes(self._lineup.running, self._lineup.num_decoding)
        self._planner.plan(plan, budget)

    def _admit_waiting(self, plan: StepPlan) -> StepBudget:
        """Admit whom there is room for; return what the step has left."""
        budget = StepBudget(self.pressure.token_budget, self._config.policy.tiers)
        budget.settle(plan)
        if self._faults.admits():
            self._entry.admit_waiting(plan, budget)
        return budget

    def _shed(self, plan: StepPlan) -> None:
        """Let the last in order give way until no more run than memory allows."""
        running = self.running
        while len(running) > self.pressure.max_running:
            group = group_of(running[-1])
            if len(group) == len(running):
                return
            self._preemptor.preempt(VictimChoice(group[0], 0, Why.MEMORY, len(running)), plan)

    def _end_never_fitting(self, plan: StepPlan) -> None:
        total = self._pool.total_blocks
        if total != self._blocks_seen or self._preemptor.somebody_gave_up:
            self._preemptor.somebody_gave_up = False
            self._blocks_seen = total
            self.endings.end_never_fitting()
            for seq in [seq for seq in plan.sequences if seq.status is SequenceStatus.FINISHED]:
                unplan(seq, plan)  # a sample of its request can never go on
