"""Take requests, or say why not; either way each has a number and an `arrive` from then on."""

from engine.admission import Admission, AdmissionRules, Load, tier_of
from engine.block_pool import BlockPool
from engine.config import EngineConfig
from engine.policy.load_gate import LoadGate
from engine.prefix_index.protocol import PrefixIndex
from engine.request import Request
from engine.runner import RunnerDescription
from engine.scheduler import Scheduler
from engine.sequence import Sequence
from engine.statements import as_signed_word, as_time, as_word
from engine.tenants import TenantBook


class Arrivals:
    """Gives each request a number, and those that can be served a sequence in the queue.

    Attributes:
        draining: True once every later request is refused.
    """

    def __init__(
        self,
        config: EngineConfig,
        runner: RunnerDescription,
        scheduler: Scheduler,
        pool: BlockPool,
        index: PrefixIndex,
    ) -> None:
        self.draining = False
        self.rules = AdmissionRules(config, runner, scheduler.quotas, scheduler.span)
        self._config = config
        self._eos = frozenset(runner.eos_token_ids)
        self._scheduler = scheduler
        self._pool = pool
        self._index = index
        self._gate = LoadGate(config.policy, pool)
        self._tenants = TenantBook(scheduler.tally, recorder=scheduler.say.recorder)
        for alias in config.policy.tenants:  # what is reserved is reserved from the start
            self._tenant(alias)

    def take(self, request: Request) -> Admission:
        """Let a request wait its turn, or refuse it."""
        seq_id = self._scheduler.numbers.take()
        tenant = self._tenant(request.tenant)
        rejection = self.rules.refuse(request, tenant=tenant, load=self._load(request))
        if rejection is None:
            seq = self._sequence(seq_id, request, tenant)
            self._state_arrival(seq_id, request, tenant, seq)
            self._scheduler.enqueue(seq)
            return Admission(seq_id)
        self._state_arrival(seq_id, request, tenant, None)
        self._scheduler.say.reject(
            seq_id, rejection.reason, needed=rejection.needed, limit=rejection.limit, tenant=tenant
        )
        return Admission(seq_id, rejection)

    def look_at_pool(self) -> None:
        """Let the watermark gate see how much of the pool is in use; call it after each pass."""
        self._gate.look()

    def _tenant(self, alias: str) -> int:
        tenant = self._tenants.id_of(alias)
        limits = self._scheduler.quotas.name(tenant, alias)
        self._scheduler.ranking.weigh(tenant, limits.weight)
        return tenant

    def _load(self, request: Request) -> Load:
        waiting, tier = self._scheduler.waiting, tier_of(request)
        closed = self._gate.look()
        bounded = self._config.policy.tiers[tier].max_queue is not None  # else nobody asks
        return Load(
            num_waiting=len(waiting),
            num_waiting_of_tier=sum(seq.tier == tier for seq in waiting) if bounded else 0,
            active_blocks=self._pool.num_active,
            closed_above=self._gate.high_blocks if closed else None,
            shutting_down=self.draining,
        )

    def _sequence(self, seq_id: int, request: Request, tenant: int) -> Sequence:
        span = self._scheduler.span
        seq = Sequence(
            seq_id, request, block_size=span.block_size, tenant=tenant, num_groups=span.num_groups
        )
        seq.max_num_tokens = seq.num_prompt_tokens + self.rules.max_tokens(request)
        if not request.sampling.ignore_eos:
            seq.stop_ids |= self._eos
        self._index.identify_prompt(seq)
        return seq

    def _state_arrival(
        self, seq_id: int, request: Request, tenant: int, seq: Sequence | None
    ) -> None:
        self._scheduler.tally.arrivals += 1
        recorder = self._scheduler.say.recorder
        if recorder is None:
            return
        asked = as_word(request.sampling.max_tokens) if request.max_tokens_asked else None
        recorder.arrive(
            seq_id,
            as_word(request.num_prompt_tokens),
            as_word(self.rules.max_tokens(request)),
            tenant,
            asked_max_tokens=asked,
            priority=as_signed_word(request.priority),
            tier=as_word(request.tier),
            deadline_ns=as_time(request.deadline_ns),
            retry=as_word(request.retry),
            request_hash=request.request_hash,
            frontend_ns=request.frontend_ns,
            hashes=seq.block_hashes if seq is not None else (),
        )
