"""The engine: takes requests, runs steps, and states what it does. One thread calls it."""

import logging
from typing import TYPE_CHECKING

from engine.accounts import Accounts, SecondsCounter
from engine.admission import Admission, Rejection
from engine.arrivals import Arrivals
from engine.block_pool import BlockPool
from engine.books import Books
from engine.clock import Clock
from engine.config import EngineConfig
from engine.errors import StepMemoryError
from engine.faults.pass_faults import PassFaults
from engine.faults.protocol import FaultInjector, NoFaults
from engine.forks.forking import Forking
from engine.lineup import group_of
from engine.preemption import Preemption
from engine.prefix_index.opening import open_prefix_index
from engine.recording import KeyframeSource
from engine.reports import Reports
from engine.request import Request
from engine.runner import ModelRunner, StepPlan, StepResult
from engine.scheduler import Scheduler
from engine.sharing_report import SharingMeter, SharingReport
from engine.sliding_window import SlidingWindow
from engine.step_outcome import OutcomeTaker, StepOutcome
from engine.token_event import TokenEvent as TokenEvent
from kvpulse.events import FinishReason
from kvpulse.identity import KeyedHashes

if TYPE_CHECKING:
    from kvpulse.recorder import Recorder

_log = logging.getLogger(__name__)


class Engine:
    """One engine over one pool.

    Not thread-safe; its Recorder belongs to the same thread. `open_engine` builds both.

    Attributes:
        config: What it was built with.
        description: What its runner is.
        max_context: Most tokens of a sequence.
        span: What a sequence holds of the pool's blocks.
        num_steps: Steps that ran.
        idle: True when the last step had nothing to run, although somebody may wait.
    """

    def __init__(
        self,
        config: EngineConfig,
        runner: ModelRunner,
        *,
        clock: Clock,
        recorder: "Recorder | None" = None,
        keyframes: KeyframeSource | None = None,
        faults: FaultInjector | None = None,
        hashes: KeyedHashes | None = None,
    ) -> None:
        self.config = config
        self.description = runner.describe()
        self.num_steps = 0
        self.idle = True
        self._runner = runner
        self._clock = clock
        self._recorder = recorder
        self._faults = faults or NoFaults()
        self._pool = BlockPool(config.total_blocks, recorder=recorder)
        self._cache = open_prefix_index(
            config.prefix_index,
            self._pool,
            block_size=config.block_size,
            runner=self.description,
            hashes=hashes,
        )
        self._host_pool: BlockPool | None = None
        if config.host_blocks:
            self._host_pool = BlockPool(config.host_blocks, recorder=recorder, host=True)
        self._scheduler = Scheduler(
            config,
            self._pool,
            self._cache,
            clock=clock,
            recorder=recorder,
            faults=self._faults,
            host_pool=self._host_pool,
            windows=self.description.windows,
        )
        self.span = self._scheduler.span
        forking = Forking(self._scheduler, self._pool, recorder=recorder)
        self._outcomes = self._outcome_taker(forking)
        self._arrivals = Arrivals(
            config, self.description, self._scheduler, self._pool, self._cache
        )
        self.max_context = self._arrivals.rules.max_context
        self._reports = Reports(
            config, self._pool, self._scheduler, host_pool=self._host_pool, recorder=recorder
        )
        self._reports.time_allocations(clock)
        self._keyframes = keyframes or KeyframeSource()
        self._keyframes.attach(self._pool, self._scheduler, host_pool=self._host_pool)
        self._books = Books(self._pool, self._scheduler, self._keyframes, host_pool=self._host_pool)
        self._sharing = self._sharing_meter(forking)
        self._pool_wait = SecondsCounter()
        self._closed = False
        self._reports.state_config(self.description, max_context=self.max_context)
        self._pass_faults = self._what_misbehaves()
        self._report()

    def _outcome_taker(self, forking: Forking) -> OutcomeTaker:
        window, recorder = SlidingWindow.of(self.span, self._pool), self._recorder
        return OutcomeTaker(self._scheduler, self._cache, forking, window=window, recorder=recorder)

    def _sharing_meter(self, forking: Forking) -> SharingMeter:
        return SharingMeter(
            self._pool,
            self._cache,
            self._scheduler,
            forking,
            runner=self.description,
            block_size=self.config.block_size,
        )

    def _what_misbehaves(self) -> PassFaults | None:
        """Return the faults that act in whole passes; None costs a pass no look at them."""
        if type(self._faults) is NoFaults:
            return None
        return PassFaults(self._faults, self._pool, recorder=self._recorder, submit=self.submit)

    @property
    def has_work(self) -> bool:
        """Return whether any sequence is live."""
        return bool(self._scheduler.live)

    @property
    def next_report_ns(self) -> int:
        """Return when the next audit and heartbeat are due."""
        return self._reports.due_ns

    @property
    def next_deadline_ns(self) -> int | None:
        """Return when the next sequence runs out of time, if any may."""
        return self._scheduler.next_deadline_ns

    @property
    def rejections(self) -> dict[int, Rejection]:
        """Return why requests were rejected out of the queue, by number.

        Whoever answers the client takes a reason out.
        """
        return self._scheduler.endings.rejections

    @property
    def latest_preemptions(self) -> list[Preemption]:
        """Return who gave way lately, for whom, why and at what cost; the newest last."""
        return self._scheduler.latest_preemptions

    @property
    def num_waiting(self) -> int:
        """Return how many sequences wait."""
        return len(self._scheduler.waiting)

    @property
    def num_running(self) -> int:
        """Return how many sequences run."""
        return len(self._scheduler.running)

    def submit(self, request: Request) -> Admission:
        """Take a request, or say why not. Either way it has a number from now on."""
        return self._arrivals.take(request)

    def cancel(self, root: int) -> bool:
        """End all sequences of a request at once, in whatever state; False if none is live.

        Args:
            root: The number that `submit` gave.
        """
        seqs = self._scheduler.endings.sequences_of(root)
        for seq in seqs:
            self._scheduler.tally.cancelled += 1
            self._scheduler.end(seq, FinishReason.CANCELLED)
        return bool(seqs)

    def stop(self, seq_id: int) -> bool:
        """End a live sequence whose text has met a stop string; False if not live.

        A beam ends with all of its search.
        """
        seq = self._scheduler.live.get(seq_id)
        if seq is None:
            return False
        for member in group_of(seq):
            self._scheduler.end(member, FinishReason.STOP)
        return True

    def step(self) -> list[TokenEvent]:
        """Run one pass and one step; return the tokens it gave, and ends that came without one."""
        clock = self._clock
        if self._pass_faults is not None:
            self._pass_faults.act()
        started_ns = clock.now_ns()
        self._sharing.note(started_ns)
        self._scheduler.expire(started_ns)
        plan = self._scheduler.run_pass(self.num_steps)
        self._arrivals.look_at_pool()
        self._pool_wait.set(self._scheduler.judge.num_waiting_for_pool > 0, started_ns)
        self.idle = not plan.sequences
        if self.idle:
            if plan.block_moves:  # whoever was swapped out gave way to nobody
                self._runner.execute(plan)
            self._report()
            return self._take_notices()
        planned_ns = clock.now_ns()
        result = self._execute(plan)
        if result is None:
            self._report()
            return self._take_notices()
        finished_ns = clock.now_ns()
        self._sharing.note(finished_ns)
        outcome = self._outcomes.take(plan, result, finished_ns)
        self._sharing.note_step(outcome.prefill_tokens, outcome.decode_tokens, result.compute_ns)
        self._state_step(
            outcome,
            num_sequences=len(plan.sequences),
            schedule_ns=planned_ns - started_ns,
            compute_ns=result.compute_ns,
            sample_ns=result.sample_ns,
        )
        self._report()
        if self._scheduler.endings.notices:
            return self._take_notices() + outcome.events
        return outcome.events

    def is_live(self, seq_id: int) -> bool:
        """Return whether a sequence has not ended yet."""
        return seq_id in self._scheduler.live

    def tick(self) -> list[TokenEvent]:
        """State audit and heartbeat if they are due; return ends that came without a token.

        Call it also while idle.
        """
        if self._pass_faults is not None:
            self._pass_faults.act()
        self._scheduler.expire(self._clock.now_ns())
        self._report()
        return self._take_notices()

    def expire(self, now_ns: int) -> list[TokenEvent]:
        """End whatever has run out of time by `now_ns`; `step` and `tick` do it by themselves."""
        self._scheduler.expire(now_ns)
        return self._take_notices()

    def _execute(self, plan: StepPlan) -> StepResult | None:
        """Run the plan; None if the model had not the memory, and the next ones will be smaller."""
        pressure = self._scheduler.pressure
        try:
            result = self._runner.execute(plan)
        except StepMemoryError:
            _log.warning("step %d ran out of memory; smaller ones follow", self.num_steps)
            self._scheduler.step_failed(plan)
            return None
        if pressure.lowered:
            pressure.succeeded()
        return result

    def _take_notices(self) -> list[TokenEvent]:
        notices = self._scheduler.endings.notices
        taken = notices.copy()
        notices.clear()
        return taken

    def _report(self) -> None:
        now_ns = self._clock.now_ns()
        if now_ns >= self._reports.due_ns:
            self._reports.state(now_ns, step=self.num_steps)

    def begin_drain(self) -> None:
        """Refuse every later request with `shutting_down`; what is live goes on."""
        self._arrivals.draining = True

    def drain(self) -> None:
        """Refuse later requests and run until nothing is live or nothing can run any more."""
        self.begin_drain()
        while self.has_work:
            self.step()
            if self.idle:
                return

    def end_all(self, reason: FinishReason) -> list[int]:
        """End every live sequence, as after a failed step; return their numbers."""
        seqs = list(self._scheduler.live.values())
        for seq in seqs:
            self._scheduler.end(seq, reason)
        return [seq.seq_id for seq in seqs]

    def close(self) -> None:
        """End what is still live, state a last audit, and end the recording."""
        if self._closed:
            return
        self._closed = True
        self.begin_drain()
        self.end_all(FinishReason.CANCELLED)
        now_ns = self._clock.now_ns()
        self._pool_wait.set(False, now_ns)
        self._reports.state(now_ns, step=self.num_steps)
        if self._recorder is not None:
            self._recorder.close()

    def accounts(self) -> Accounts:
        """Return what pool and scheduler counted of their own acts."""
        return self._books.accounts(seconds_with_pool_wait=self._pool_wait.seconds())

    def sharing_report(self) -> SharingReport:
        """Return what sharing blocks gave and cost so far."""
        return self._sharing.report(self._clock.now_ns())

    def check(self) -> None:
        """Recount pools and tables, and raise where they disagree."""
        self._books.check()

    def _state_step(
        self,
        outcome: StepOutcome,
        *,
        num_sequences: int,
        schedule_ns: int,
        compute_ns: int,
        sample_ns: int,
    ) -> None:
        number = self.num_steps
        self.num_steps += 1
        self._keyframes.last_step = number
        self._scheduler.tally.steps += 1
        if self._recorder is not None:
            self._recorder.step(
                number,
                outcome.prefill_tokens,
                outcome.decode_tokens,
                num_sequences,
                outcome.context_tokens,
                self.num_waiting,
                schedule_ns,
                compute_ns,
                sample_ns,
            )
