"""Whether a request can be served at all, decided when it arrives; a refusal is a value."""

from dataclasses import dataclass

from engine.config import EngineConfig
from engine.request import Request
from engine.runner import RunnerDescription
from engine.sampling_params import SamplingParams
from kvpulse.events import REJECT_RULES, RejectReason


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
class AdmissionRules:
    """The limits that requests are held against."""

    config: EngineConfig
    max_context: int
    vocab_size: int

    @classmethod
    def of(cls, config: EngineConfig, runner: RunnerDescription) -> "AdmissionRules":
        """Take the smaller context of configuration and runner."""
        asked = config.max_context or runner.max_context
        return cls(config, min(asked, runner.max_context), runner.vocab_size)

    def max_tokens(self, request: Request) -> int:
        """Return the request's max_tokens, clamped to the room its prompt leaves."""
        room = self.max_context - request.num_prompt_tokens
        return min(request.sampling.max_tokens, room)

    def refuse(
        self, request: Request, *, num_waiting: int, shutting_down: bool
    ) -> Rejection | None:
        """Return why the request cannot be taken, or None."""
        fault = self._fault(request)
        if fault:
            return Rejection(RejectReason.INVALID_REQUEST, 0, 0, fault)
        if shutting_down:
            return Rejection(RejectReason.SHUTTING_DOWN, 0, 0, "the engine is shutting down")
        prompt = request.num_prompt_tokens
        if prompt >= self.max_context:
            message = (
                f"the prompt has {prompt} tokens; the context holds {self.max_context}, "
                "at least one of which must be left for output"
            )
            return Rejection(RejectReason.CONTEXT_TOO_LONG, prompt, self.max_context, message)
        return self._refuse_for_room(request, num_waiting=num_waiting)

    def _refuse_for_room(self, request: Request, *, num_waiting: int) -> Rejection | None:
        total = self.config.total_blocks
        # The last generated token is never fed back, so it needs no slot.
        longest = request.num_prompt_tokens + self.max_tokens(request) - 1
        needed = self.config.blocks_for(longest)
        if needed > total:
            message = f"the request may need {needed} blocks; the pool has {total}"
            return Rejection(RejectReason.EXCEEDS_POOL, needed, total, message)
        max_queue = self.config.max_queue
        if num_waiting >= max_queue:
            message = f"{num_waiting} sequences wait already; the queue holds {max_queue}"
            return Rejection(RejectReason.QUEUE_FULL, num_waiting + 1, max_queue, message)
        return None

    def _fault(self, request: Request) -> str | None:
        """Return what is wrong with the request by itself."""
        if request.num_prompt_tokens < 1:
            return "the prompt is empty"
        if self.vocab_size and request.simulated is None:
            ids = request.prompt_token_ids
            if min(ids) < 0 or max(ids) >= self.vocab_size:
                return f"a prompt token id is outside the vocabulary of {self.vocab_size}"
        return sampling_fault(request.sampling)


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
    if not 0 <= sampling.length_penalty < float("inf"):
        return f"length_penalty is {sampling.length_penalty}; 0 or more is needed"
    return None
