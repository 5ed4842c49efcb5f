"""One tenant that sends more than its share: long prompts, long answers, again and again."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from engine.faults.fault import Fault, FaultParameters
from engine.faults.setup import FaultSetup
from engine.request import Request, SimulatedContent
from engine.runner import ModelRunner
from engine.sampling_params import SamplingParams

_FIRST_WORD: Final = 1000  # below it, vocabularies keep bytes and special tokens
_MOST_AT_ONCE: Final = 64  # after a long pause of the engine


@dataclass(frozen=True, slots=True)
class HogTenantParameters(FaultParameters):
    """What the tenant sends.

    Attributes:
        tenant: Its alias.
        every_seconds: Engine time between two of its requests.
        prompt_tokens: Of each; 0: a sixteenth of the pool, at most half a context.
        max_tokens: Of each answer; 0: half of that.
    """

    tenant: str = "hog"
    every_seconds: float = 1.0
    prompt_tokens: int = 0
    max_tokens: int = 0

    def __post_init__(self) -> None:
        FaultParameters.__post_init__(self)
        self.need("tenant", bool(self.tenant), "a name")
        self.need("every_seconds", self.every_seconds >= 0.001, "0.001 or more")
        self.need("prompt_tokens", self.prompt_tokens >= 0, "0 or more")
        self.need("max_tokens", self.max_tokens >= 0, "0 or more")


class HogTenant(Fault):
    """The engine is sent long requests of one tenant, which are requests like all others."""

    def __init__(self, setup: FaultSetup, parameters: HogTenantParameters) -> None:
        super().__init__("hog_tenant", setup, parameters)
        self._parameters = parameters
        self._next_ns = self.began_ns
        self._vocab_size = 0
        self._num_prompt_tokens = self._num_output_tokens = 0

    def wrap_runner(self, runner: ModelRunner) -> ModelRunner:
        """Learn how long a request may be, and of which tokens; change nothing."""
        description, config = runner.describe(), self.setup.config
        context = min(config.max_context or description.max_context, description.max_context)
        share = min(context // 2, config.total_blocks * config.block_size // 16)
        self._num_prompt_tokens = self._parameters.prompt_tokens or max(1, share)
        self._num_output_tokens = self._parameters.max_tokens or max(1, share // 2)
        self._vocab_size = description.vocab_size
        return runner

    def requests(self) -> Sequence[Request]:
        """Return what is due."""
        if not self.acts_now:
            return ()
        now_ns = self.setup.clock.now_ns()
        every_ns = int(self._parameters.every_seconds * 1e9)
        due: list[Request] = []
        while self._next_ns <= now_ns and len(due) < _MOST_AT_ONCE:
            self._next_ns += every_ns
            due.append(self._request())
        if self._next_ns <= now_ns:
            self._next_ns = now_ns + every_ns
        if due:
            tenant, length = self._parameters.tenant, self._num_prompt_tokens
            self.state(
                f"tenant {tenant} sends {len(due)} requests of {length} tokens",
                tenant=tenant,
                requests=len(due),
                prompt_tokens=length,
                max_tokens=self._num_output_tokens,
            )
        return due

    def _request(self) -> Request:
        length, most = self._num_prompt_tokens, self._num_output_tokens
        sampling = SamplingParams(max_tokens=most, ignore_eos=True)
        tenant = self._parameters.tenant
        if not self._vocab_size:
            content = SimulatedContent(length, most + 1)
            return Request(sampling=sampling, tenant=tenant, simulated=content)
        first = _FIRST_WORD if self._vocab_size > 2 * _FIRST_WORD else 0
        words = range(first, self._vocab_size)
        return Request(self.random.choices(words, k=length), sampling=sampling, tenant=tenant)
