"""Choose each step's work: continuous batching with chunked prefill, first come, first served.

One pass decides one step. Running sequences come first, in order of arrival: each decodes one token
or runs the next chunk of its prompt, within the token budget; decodes always fit. A sequence that
needs a block when none is left preempts the one that arrived last, which gives up its blocks and
waits at the head of the queue. Then waiting sequences are admitted in order of arrival, while there
is a batch slot, budget, and room for **all** their tokens above the watermark; the first that does
not fit ends the pass, nobody overtakes it. Without others running there is no watermark.

Running and waiting are both ordered by arrival, and whoever runs arrived before whoever waits.
"""

from collections import deque
from typing import TYPE_CHECKING

from engine.accounts import Tally
from engine.block_pool import BlockPool
from engine.clock import Clock
from engine.config import EngineConfig
from engine.errors import AccountError
from engine.faults.protocol import FaultInjector, NoFaults
from engine.forks.table_growth import TableGrowth
from engine.pool_results import AllocationRefusal
from engine.prefix_cache import PrefixCache, PrefixHit
from engine.runner import StepPlan
from engine.sequence import Sequence, SequenceStatus
from engine.sequence_numbers import SequenceNumbers
from engine.wait_causes import PassEnd, WaitJudge, level_of
from kvpulse.events import FinishReason, PreemptMode, WaitCause

if TYPE_CHECKING:
    from kvpulse.recorder import Recorder


class Scheduler:
    """The queue, the running batch, and every act that moves a sequence between them."""

    def __init__(
        self,
        config: EngineConfig,
        pool: BlockPool,
        cache: PrefixCache,
        *,
        clock: Clock,
        recorder: "Recorder | None" = None,
        faults: FaultInjector | None = None,
    ) -> None:
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self.live: dict[int, Sequence] = {}
        self.tally = Tally()
        self.numbers = SequenceNumbers()
        self.tables = TableGrowth(pool, block_size=config.block_size, recorder=recorder)
        self.num_decoding = 0
        self.leaked: list[int] = []
        self.leaked_empty_slots = 0
        self.judge = WaitJudge(pool, cache, tally=self.tally, clock=clock, recorder=recorder)
        self._config = config
        self._pool = pool
        self._cache = cache
        self._clock = clock
        self._recorder = recorder
        self._faults = faults or NoFaults()

    def enqueue(self, seq: Sequence) -> None:
        """Let a sequence that just arrived wait its turn."""
        seq.arrived_ns = self._clock.now_ns()
        self.live[seq.seq_id] = seq
        self.judge.enter(seq, seq.arrived_ns)
        self.waiting.append(seq)

    def adopt(self, child: Sequence) -> None:
        """Let a sequence that just split off a running one run beside it, decoding.

        It stands behind the last running sequence of its request. Its `fork` is stated before.
        """
        running = self.running
        last = max(i for i, seq in enumerate(running) if seq.root_id == child.root_id)
        running.insert(last + 1, child)
        self.live[child.seq_id] = child
        child.status = SequenceStatus.RUNNING
        child.arrived_ns = child.since_ns = self._clock.now_ns()
        child.prefilling = False
        child.ran = True
        self.num_decoding += 1
        self.tally.forks += 1

    def run_pass(self, step: int) -> StepPlan:
        """Decide one step, and say of everyone who still waits why."""
        plan = StepPlan(step)
        self._plan_running(plan)
        budget_left = self._config.token_budget - sum(plan.num_new_tokens)
        if self.waiting:
            if self._faults.admits():
                budget_left -= self._admit_waiting(plan, budget_left)
            self.judge.judge(self.waiting, self._pass_end(budget_left))
        return plan

    def end(self, seq: Sequence, reason: FinishReason) -> None:
        """Take a live sequence out, wherever it is; its blocks go back first."""
        self._take_out(seq)
        table = seq.block_table
        if table.block_ids:
            lost = self._faults.kept_at_end(seq.seq_id, table.held_ids, reason)
            if lost:
                self._lose(seq, lost)
            freed = list(table.held_ids)
            self._pool.free(seq.seq_id, table.give_up(), seq.tenant)
            unheld = [block_id for block_id in freed if not self._pool.counts[block_id]]
            twice = self._faults.freed_twice(seq.seq_id, unheld, reason)
            if twice:
                self._pool.free(seq.seq_id, list(twice), seq.tenant)
        self.record_end(seq, reason)

    def record_end(self, seq: Sequence, reason: FinishReason) -> None:
        """State that a sequence ended, and forget it."""
        if self._recorder is not None:
            self._recorder.finish(
                seq.seq_id,
                reason,
                seq.num_prompt_tokens,
                seq.num_output_tokens,
                seq.computed_tokens,
                seq.recomputed_tokens,
                seq.tenant,
            )
        self.tally.finished[reason] = self.tally.finished.get(reason, 0) + 1
        seq.status = SequenceStatus.FINISHED
        del self.live[seq.seq_id]

    def check(self) -> None:
        """Recount queue and batch, and raise `AccountError` at the first thing that disagrees."""
        both = [*self.running, *self.waiting]
        order = [(seq.root_id, seq.sample_index) for seq in both]
        if order != sorted(order) or {seq.seq_id for seq in both} != set(self.live):
            raise AccountError(f"running and waiting are not the live ones by arrival: {order}")
        if self.num_decoding != sum(not seq.prefilling for seq in self.running):
            raise AccountError(f"{self.num_decoding} counted as decoding in {self.running}")
        for seq in self.running:
            if not seq.num_computed_tokens <= seq.num_slots == seq.block_table.num_slots:
                raise AccountError(f"{seq} has tokens outside its blocks")
        for seq in self.waiting:
            if seq.block_table.block_ids:
                raise AccountError(f"{seq} waits and holds blocks")

    def _lose(self, seq: Sequence, lost: list[int]) -> None:
        """Let an ending sequence forget some of its blocks without freeing them (a fault)."""
        table, size = seq.block_table.block_ids, self._config.block_size
        missing = set(lost)
        for index, block_id in enumerate(table):
            if block_id in missing:
                filled = min(max(seq.num_computed_tokens - index * size, 0), size)
                self.leaked_empty_slots += size - filled
        self.leaked += lost
        table[:] = [block_id for block_id in table if block_id not in missing]

    def _take_out(self, seq: Sequence) -> None:
        if seq.status is SequenceStatus.RUNNING:
            self.running.remove(seq)
            if not seq.prefilling:
                self.num_decoding -= 1
        else:
            self.waiting.remove(seq)
            self.judge.leave(seq)

    def _plan_running(self, plan: StepPlan) -> None:
        sequences, num_new_tokens = plan.sequences, plan.num_new_tokens
        prefill_left = self._config.token_budget - self.num_decoding
        # Growing may preempt, which only ever shortens the list behind the present position.
        for seq in self.running:
            if seq.prefilling:
                n = min(seq.num_tokens - seq.num_computed_tokens, prefill_left)
                if n <= 0:
                    continue
                prefill_left -= n
            elif (seq.num_computed_tokens == seq.num_slots or seq.shares_tail) and not self._reach(
                seq, plan
            ):
                continue
            else:
                n = 1
            sequences.append(seq)
            num_new_tokens.append(n)

    def _reach(self, seq: Sequence, plan: StepPlan) -> bool:
        """Make room for a running sequence's next token; False when it had to give up its own."""
        while True:
            refusal = self.tables.reach(seq, 1, plan)
            if refusal is None:
                return True
            self._record_refusal(seq, refusal)
            victim = self.running[-1]
            self._preempt(victim, beneficiary=0 if victim is seq else seq.seq_id)
            if victim is seq:
                return False

    def _preempt(self, victim: Sequence, *, beneficiary: int) -> None:
        """Take the blocks of the last running sequence; it will compute its tokens again."""
        held, tokens_lost = victim.block_table.give_up(), victim.num_computed_tokens
        num_blocks = len(held)
        freed = self._pool.free(victim.seq_id, held, victim.tenant)
        if self._recorder is not None:
            self._recorder.preempt(
                victim.seq_id,
                beneficiary,
                PreemptMode.RECOMPUTE,
                tokens_lost,
                num_blocks,
                freed.to_cache,
                victim.tenant,
            )
        self.tally.preempts += 1
        self.running.pop()
        if not victim.prefilling:
            self.num_decoding -= 1
        victim.status = SequenceStatus.PREEMPTED
        victim.prefilling = True
        victim.num_preemptions += 1
        victim.recompute_until = max(victim.recompute_until, tokens_lost)
        victim.finished_computed_tokens += tokens_lost - victim.computed_from
        victim.num_computed_tokens = victim.computed_from = victim.num_slots = 0
        self.judge.enter(victim, self._clock.now_ns())
        self.waiting.appendleft(victim)

    def _admit_waiting(self, plan: StepPlan, budget_left: int) -> int:
        """Admit from the head of the queue; return the tokens that gave the step to do."""
        num_tokens = 0
        while self.waiting and num_tokens < budget_left:
            if len(self.running) >= self._config.max_batch or not self._admit(self.waiting[0]):
                break
            seq = self.running[-1]
            n = min(seq.num_tokens - seq.num_computed_tokens, budget_left - num_tokens)
            num_tokens += n
            plan.sequences.append(seq)
            plan.num_new_tokens.append(n)
        return num_tokens

    def _admit(self, seq: Sequence) -> bool:
        """Let the head of the queue run, if the pool has room for all its tokens."""
        room = self._pool.num_available - self._watermark()
        level = self.judge.known_level(seq)
        if level is None or level <= room:
            hit = self._cache.lookup(seq)
            level = level_of(seq, hit)
            if level <= room:
                self._start(seq, hit)
                return True
        if not seq.refusal_recorded:
            pool = self._pool
            refusal = AllocationRefusal(level, pool.num_free, pool.num_cached)
            self._record_refusal(seq, refusal)
            seq.refusal_recorded = True
        return False

    def _start(self, seq: Sequence, hit: PrefixHit) -> None:
        """Admit or resume a sequence: first what is kept of it, then new blocks for the rest."""
        owner, tenant = seq.seq_id, seq.tenant
        num_hit = len(hit.block_ids)
        hit_tokens = num_hit * self._config.block_size
        resumed = seq.status is SequenceStatus.PREEMPTED
        self._record_start(seq, hit_tokens, resumed=resumed)
        self.waiting.popleft()
        self.judge.leave(seq)
        seq.status = SequenceStatus.RUNNING
        seq.since_ns = self._clock.now_ns()
        seq.num_computed_tokens = seq.computed_from = hit_tokens
        self.running.append(seq)
        self._record_hit(seq, hit_tokens, resumed=resumed)
        table = seq.block_table.block_ids
        if num_hit:
            self._pool.share(owner, hit.block_ids, table, tenant)
        num_blocks = self._config.blocks_for(seq.num_tokens)
        answer = self._pool.allocate(owner, num_blocks - num_hit, tenant)
        assert not isinstance(answer, AllocationRefusal), "room was counted before"
        table += answer
        seq.num_slots = num_blocks * self._config.block_size
        self._cache.begin(seq, num_hit)

    def _record_start(self, seq: Sequence, hit_tokens: int, *, resumed: bool) -> None:
        if resumed:
            if self._recorder is not None:
                self._recorder.resume(seq.seq_id, hit_tokens, seq.tenant)
            self.tally.resumes += 1
        else:
            if self._recorder is not None:
                self._recorder.admit(seq.seq_id, seq.tenant)
            self.tally.admits += 1

    def _record_hit(self, seq: Sequence, hit_tokens: int, *, resumed: bool) -> None:
        if not self._cache.enabled:
            return
        if self._recorder is not None:
            self._recorder.prefix_hit(seq.seq_id, hit_tokens, seq.num_tokens, resumed, seq.tenant)
        self.tally.prefix_hits += 1
        self.tally.prefix_hit_tokens += hit_tokens
        self.tally.prefix_queried_tokens += seq.num_tokens

    def _record_refusal(self, seq: Sequence, refusal: AllocationRefusal) -> None:
        if self._recorder is not None:
            self._recorder.allocate_failed(
                seq.seq_id,
                refusal.needed,
                refusal.free,
                refusal.cached,
                WaitCause.POOL,
                seq.tenant,
            )
        self.tally.allocate_failures += 1

    def _watermark(self) -> int:
        return self._config.watermark_blocks if self.running else 0

    def _pass_end(self, budget_left: int) -> PassEnd:
        slots_full = len(self.running) >= self._config.max_batch
        return PassEnd(slots_full, budget_left <= 0, self._watermark())
