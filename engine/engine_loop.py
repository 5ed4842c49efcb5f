"""The engine: takes requests, runs steps, and states what it does. One thread calls it."""

from collections import Counter
from typing import TYPE_CHECKING

from engine.accounts import Accounts, SecondsCounter
from engine.admission import Admission, AdmissionRules, Rejection
from engine.block_pool import BlockPool
from engine.clock import Clock
from engine.config import EngineConfig
from engine.errors import AccountError
from engine.faults.pass_faults import PassFaults
from engine.faults.protocol import FaultInjector, NoFaults
from engine.forks.forking import Forking
from engine.prefix_index.opening import open_prefix_index
from engine.recording import KeyframeSource
from engine.reports import Reports
from engine.request import Request
from engine.runner import ModelRunner
from engine.scheduler import Scheduler
from engine.sequence import Sequence
from engine.sliding_window import SlidingWindow
from engine.step_outcome import OutcomeTaker, StepOutcome
from engine.tenants import TenantBook
from engine.token_event import TokenEvent as TokenEvent
from kvpulse.events import FinishReason, Kind
from kvpulse.identity import KeyedHashes

if TYPE_CHECKING:
    from kvpulse.recorder import Recorder

_LARGEST_WORD = 0xFFFF_FFFE  # one below "not measured"


class Engine:
    """One engine over one pool.

    Not thread-safe; its Recorder belongs to the same thread. `open_engine` builds both.

    Attributes:
        config: What it was built with.
        description: What its runner is.
        max_context: Most tokens of a sequence.
        num_steps: Steps that ran.
        idle: True when the last step had nothing to run, although somebody may wait.
        rejections: Why requests that were taken first are rejected after all, by number; whoever
            answers the client takes them out.
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
        self.rejections: dict[int, Rejection] = {}
        self._runner = runner
        self._clock = clock
        self._recorder = recorder
        self._faults = faults or NoFaults()
        self._rules = AdmissionRules.of(config, self.description)
        self.max_context = self._rules.max_context
        self._pool = BlockPool(config.total_blocks, recorder=recorder)
        self._cache = open_prefix_index(
            config.prefix_index,
            self._pool,
            block_size=config.block_size,
            runner=self.description,
            hashes=hashes,
        )
        self._scheduler = Scheduler(
            config, self._pool, self._cache, clock=clock, recorder=recorder, faults=self._faults
        )
        window = self.description.sliding_window
        self._outcomes = OutcomeTaker(
            self._scheduler,
            self._cache,
            Forking(self._scheduler, self._pool, recorder=recorder),
            window=SlidingWindow(window, self._pool) if window else None,
            recorder=recorder,
        )
        self._tenants = TenantBook(self._scheduler.tally, recorder=recorder)
        self._reports = Reports(config, self._pool, self._scheduler, recorder=recorder)
        self._keyframes = keyframes or KeyframeSource()
        self._keyframes.attach(self._pool, self._scheduler)
        self._pool_wait = SecondsCounter()
        self._draining = False
        self._closed = False
        self._reports.state_config(self.description, max_context=self.max_context)
        self._pass_faults: PassFaults | None = None  # what misbehaves in a whole pass
        if type(self._faults) is not NoFaults:
            self._pass_faults = PassFaults(
                self._faults, self._pool, recorder=recorder, submit=self.submit
            )
        self._report()

    @property
    def has_work(self) -> bool:
        """Return whether any sequence is live."""
        return bool(self._scheduler.live)

    @property
    def next_report_ns(self) -> int:
        """Return when the next audit and heartbeat are due."""
        return self._reports.due_ns

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
        seq_id = self._scheduler.numbers.take()
        tenant = self._tenants.id_of(request.tenant)
        rejection = self._rules.refuse(
            request, num_waiting=self.num_waiting, shutting_down=self._draining
        )
        seq = None
        if rejection is None:
            seq = self._sequence(seq_id, request, tenant)
        self._state_arrival(seq_id, request, tenant, seq)
        if seq is not None:
            self._scheduler.enqueue(seq)
            return Admission(seq_id)
        assert rejection is not None, "one of the two"
        if self._recorder is not None:
            self._recorder.reject(
                seq_id, rejection.reason, rejection.needed, rejection.limit, tenant
            )
        rejected = self._scheduler.tally.rejected
        rejected[rejection.reason] = rejected.get(rejection.reason, 0) + 1
        return Admission(seq_id, rejection)

    def cancel(self, root: int) -> bool:
        """End all sequences of a request at once, in whatever state; False if none is live.

        Args:
            root: The number that `submit` gave.
        """
        seqs = [seq for seq in self._scheduler.live.values() if seq.root_id == root]
        for seq in seqs:
            self._scheduler.tally.cancelled += 1
            self._scheduler.end(seq, FinishReason.CANCELLED)
        return bool(seqs)

    def stop(self, seq_id: int) -> bool:
        """End a live sequence whose text has met a stop string; False if not live."""
        seq = self._scheduler.live.get(seq_id)
        if seq is None:
            return False
        self._scheduler.end(seq, FinishReason.STOP)
        return True

    def step(self) -> list[TokenEvent]:
        """Run one pass and one step; return the tokens it gave."""
        clock = self._clock
        if self._pass_faults is not None:
            self._pass_faults.act()
        started_ns = clock.now_ns()
        plan = self._scheduler.run_pass(self.num_steps)
        self._pool_wait.set(self._scheduler.judge.num_waiting_for_pool > 0, started_ns)
        self.idle = not plan.sequences
        if self.idle:
            self._report()
            return []
        planned_ns = clock.now_ns()
        result = self._runner.execute(plan)
        outcome = self._outcomes.take(plan, result, clock.now_ns())
        self._state_step(
            outcome,
            num_sequences=len(plan.sequences),
            schedule_ns=planned_ns - started_ns,
            compute_ns=result.compute_ns,
            sample_ns=result.sample_ns,
        )
        self._report()
        return outcome.events

    def is_live(self, seq_id: int) -> bool:
        """Return whether a sequence has not ended yet."""
        return seq_id in self._scheduler.live

    def tick(self) -> None:
        """State audit and heartbeat if they are due; call it also while idle."""
        if self._pass_faults is not None:
            self._pass_faults.act()
        self._report()

    def _report(self) -> None:
        now_ns = self._clock.now_ns()
        if now_ns >= self._reports.due_ns:
            self._reports.state(now_ns, step=self.num_steps)

    def begin_drain(self) -> None:
        """Refuse every later request with `shutting_down`; what is live goes on."""
        self._draining = True

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
        tally = self._scheduler.tally
        rejected = {reason.name.lower(): n for reason, n in tally.rejected.items()}
        finished = {reason.name.lower(): n for reason, n in tally.finished.items()}
        if rejected:
            finished["rejected"] = sum(rejected.values())
        acts = {
            **tally.acts(),
            **self._pool.acts,
            Kind.COPY_ON_WRITE: self._scheduler.tables.num_copied,
            Kind.KEYFRAME: self._keyframes.num_calls,
        }
        return Accounts(
            acts=acts,
            requests=tally.arrivals,
            finished_by_reason=finished,
            rejected_by_reason=rejected,
            preemptions=tally.preempts,
            prefix_hit_tokens=tally.prefix_hit_tokens,
            prefix_queried_tokens=tally.prefix_queried_tokens,
            cancelled=tally.cancelled,
            seconds_with_pool_wait=self._pool_wait.seconds(),
            steps=tally.steps,
            active_blocks=self._pool.num_active,
            cached_blocks=self._pool.num_cached,
            free_blocks=self._pool.num_free,
            leaked_blocks=len(set(self._scheduler.leaked)),
        )

    def check(self) -> None:
        """Recount pool and tables, and raise where they disagree."""
        self._pool.check()
        self._scheduler.check()
        held = Counter(self._scheduler.leaked)
        for seq in self._scheduler.live.values():
            held.update(seq.block_table.held_ids)
        counts = self._pool.counts
        for block_id, count in enumerate(counts):
            if held[block_id] != count:
                raise AccountError(
                    f"block {block_id} has count {count}; {held[block_id]} table entries name it"
                )

    def _sequence(self, seq_id: int, request: Request, tenant: int) -> Sequence:
        seq = Sequence(seq_id, request, block_size=self.config.block_size, tenant=tenant)
        seq.max_num_tokens = seq.num_prompt_tokens + self._rules.max_tokens(request)
        if not request.sampling.ignore_eos:
            seq.stop_ids |= frozenset(self.description.eos_token_ids)
        self._cache.identify_prompt(seq)
        return seq

    def _state_arrival(
        self, seq_id: int, request: Request, tenant: int, seq: Sequence | None
    ) -> None:
        self._scheduler.tally.arrivals += 1
        if self._recorder is None:
            return
        asked = _word(request.sampling.max_tokens) if request.max_tokens_asked else None
        self._recorder.arrive(
            seq_id,
            _word(request.num_prompt_tokens),
            _word(self._rules.max_tokens(request)),
            tenant,
            asked_max_tokens=asked,
            priority=request.priority,
            tier=_word(request.tier),
            deadline_ns=request.deadline_ns,
            retry=_word(request.retry),
            request_hash=request.request_hash,
            frontend_ns=request.frontend_ns,
            hashes=seq.block_hashes if seq is not None else (),
        )

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


def _word(value: int) -> int:
    """Return a number as it fits a payload word."""
    return min(max(value, 0), _LARGEST_WORD)
