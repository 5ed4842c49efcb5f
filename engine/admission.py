"""Whether a request can be served at all, decided when it arrives; a refusal is a value."""

from dataclasses import dataclass
from typing import Final

from engine.config import EngineConfig
from engine.policy.scheduling_policy import NUM_TIERS
from engine.policy.tenant_quotas import TenantQuotas
from engine.request import Request
from engine.runner import RunnerDescription
from engine.sampling_params import SamplingParams
from engine.table_span import TableSpan
from kvpulse.events import REJECT_RULES, RejectReason

MOST_LENGTH_PENALTY: Final = 32  # beyond it, the power of a long answer's length has no float
MOST_TOKEN_IDS: Final = 1 << 32  # what blocks are known by, where no vocabulary says less


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a request was refused.

    Attributes:
        needed: What it asks for, in the reason's own unit (tokens, blocks, places); 0 if none.
        limit: What there is of it.
    """

    reason: RejectReason
    needed: int
    limit: int
    message: str

    @property
    def http_status(self) -> int:
        """Return the status that a client is answered with."""
        return REJECT_RULES[self.reason].http_status

    @property
    def retryable(self) -> bool:
        """Return whether the same request may be served later."""
        return REJECT_RULES[self.reason].retryable


@dataclass(frozen=True, slots=True)
class Admission:
    """The answer to a submitted request: its number, and why it was refused, if it was."""

    seq_id: int
    rejection: Rejection | None = None

    @property
    def accepted(self) -> bool:
        """Return whether the request will be served."""
        return self.rejection is None


@dataclass(frozen=True, slots=True)
class Load:
    """What an arriving request meets.

    Attributes:
        num_waiting: Requests in the queue.
        num_waiting_of_tier: Those of the request's tier.
        active_blocks: Blocks of the pool in use.
        closed_above: While new requests are refused because of that: the high watermark in blocks.
        shutting_down: Whether the engine only ends what it has.
    """

    num_waiting: int
    num_waiting_of_tier: int = 0
    active_blocks: int = 0
    closed_above: int | None = None
    shutting_down: bool = False


class AdmissionRules:
    """The limits that requests are held against."""

    def __init__(
        self,
        config: EngineConfig,
        runner: RunnerDescription,
        quotas: TenantQuotas,
        span: TableSpan,
    ) -> None:
        asked = config.max_context or runner.max_context
        self.max_context = min(asked, runner.max_context)
        self._config = config
        self._vocab_size = runner.vocab_size
        self._quotas = quotas
        self._span = span

    def context_of(self, request: Request) -> int:
        """Return the most tokens that a sequence of the request may have."""
        policy = self._config.policy
        caps = (policy.max_request_tokens, policy.tiers[tier_of(request)].max_context)
        return min([self.max_context, *(cap for cap in caps if cap is not None)])

    def max_tokens(self, request: Request) -> int:
        """Return the request's max_tokens, clamped to the room its prompt leaves."""
        room = self.context_of(request) - request.num_prompt_tokens
        return min(request.sampling.max_tokens, room)

    def refuse(self, request: Request, *, tenant: int, load: Load) -> Rejection | None:
        """Return why the request cannot be taken, or None."""
        fault = self._fault(request)
        if fault:
            return Rejection(RejectReason.INVALID_REQUEST, 0, 0, fault)
        if load.shutting_down:
            return Rejection(RejectReason.SHUTTING_DOWN, 0, 0, "the engine is shutting down")
        prompt, context = request.num_prompt_tokens, self.context_of(request)
        if prompt >= context:
            message = (
                f"the prompt has {prompt} tokens; the context holds {context}, "
                "at least one of which must be left for output"
            )
            return Rejection(RejectReason.CONTEXT_TOO_LONG, prompt, context, message)
        return self._refuse_for_ever(request, tenant) or self._refuse_for_now(request, load)

    def _refuse_for_ever(self, request: Request, tenant: int) -> Rejection | None:
        """Return why the request could not be served by an engine that does nothing else."""
        needed = self._span.most_of_request(
            num_prompt_tokens=request.num_prompt_tokens,
            max_num_tokens=request.num_prompt_tokens + self.max_tokens(request),
            num_sequences=request.sampling.num_sequences,
        )
        limit, ceiling = self._quotas.most_for(tenant), self._quotas.ceiling(tenant)
        if needed > limit:
            message = f"the request may need {needed} blocks; the pool has {limit}"
            if limit < self._quotas.total_blocks:
                message += f" for it, of {self._quotas.total_blocks}: the rest is reserved"
            return Rejection(RejectReason.EXCEEDS_POOL, needed, limit, message)
        if needed > ceiling:
            message = f"the request may need {needed} blocks; its tenant may hold {ceiling}"
            return Rejection(RejectReason.EXCEEDS_QUOTA, needed, ceiling, message)
        return None

    def _refuse_for_now(self, request: Request, load: Load) -> Rejection | None:
        """Return why the request had better come again later."""
        tier_bound = self._config.policy.tiers[tier_of(request)].max_queue
        bounds = [(load.num_waiting, self._config.max_queue)]
        if tier_bound is not None:
            bounds.append((load.num_waiting_of_tier, tier_bound))
        for num_waiting, bound in bounds:
            if num_waiting >= bound:
                message = f"{num_waiting} sequences wait already; the queue holds {bound}"
                return Rejection(RejectReason.QUEUE_FULL, num_waiting + 1, bound, message)
        if load.closed_above is not None:
            active, limit = load.active_blocks, load.closed_above
            message = f"{active} blocks are in use, after more than {limit}; try again later"
            return Rejection(RejectReason.ABOVE_WATERMARK, active, limit, message)
        return None

    def _fault(self, request: Request) -> str | None:
        """Return what is wrong with the request by itself."""
        if request.num_prompt_tokens < 1:
            return "the prompt is empty"
        if request.simulated is None:
            ids, num_ids = request.prompt_token_ids, self._vocab_size or MOST_TOKEN_IDS
            if min(ids) < 0 or max(ids) >= num_ids:
                return f"a prompt token id is outside the vocabulary of {num_ids}"
        if self._vocab_size and 2 * request.sampling.beam_width > self._vocab_size:
            return f"beam_width is more than half of the vocabulary of {self._vocab_size}"
        num_sequences, most = request.sampling.num_sequences, self._config.max_batch
        if num_sequences > most:
            return f"the request asks for {num_sequences} sequences; the batch holds {most}"
        return sampling_fault(request.sampling)


def tier_of(request: Request) -> int:
    """Return the tier of a request: 0 interactive, 1 batch and all above."""
    return min(max(request.tier, 0), NUM_TIERS - 1)


def sampling_fault(sampling: SamplingParams) -> str | None:
    """Return what is wrong with sampling parameters, or None."""
    if sampling.max_tokens < 1:
        return f"max_tokens is {sampling.max_tokens}; at least 1 is needed"
    if not 0 <= sampling.temperature < float("inf"):
        return f"temperature is {sampling.temperature}; 0 or more is needed"
    if not 0 < sampling.top_p <= 1:
        return f"top_p is {sampling.top_p}; above 0 and at most 1 is needed"
    if sampling.top_k < 0:
        return f"top_k is {sampling.top_k}; 0 or more is needed"
    return _fork_fault(sampling)


def _fork_fault(sampling: SamplingParams) -> str | None:
    """Return what is wrong with how many samples or beams are asked for, or None."""
    n, best_of, width = sampling.n, sampling.best_of, sampling.beam_width
    if n < 1:
        return f"n is {n}; at least 1 is needed"
    if best_of != 1 and best_of < n:
        return f"best_of is {best_of}; at least n ({n}) is needed"
    if width and width < n:
        return f"beam_width is {width}; 0, or at least n ({n}), is needed"
    if width and best_of > n:
        return "best_of and beam_width exclude each other"
    if not 0 <= sampling.length_penalty <= MOST_LENGTH_PENALTY:
        most = MOST_LENGTH_PENALTY
        return f"length_penalty is {sampling.length_penalty}; from 0 to {most} is needed"
    return None
