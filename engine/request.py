"""What a client sent, before anything was decided about it."""

from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

from engine.sampling_params import SamplingParams


@dataclass(frozen=True, slots=True)
class SimulatedContent:
    """Stands in for the tokens of a request that no model will read.

    Attributes:
        num_prompt_tokens: Length of the prompt.
        num_output_tokens: Tokens after which the simulated model ends it, by itself.
        block_hashes: Content identity of each full prompt block, chained by construction.
    """

    num_prompt_tokens: int
    num_output_tokens: int
    block_hashes: Seq[int] = ()


@dataclass(frozen=True, slots=True)
class Request:
    """One request: real token ids, or a simulated content instead of them.

    Attributes:
        prompt_token_ids: Empty for a simulated request.
        tenant: Configured alias of who sent it; "" for nobody in particular.
        max_tokens_asked: False when `sampling.max_tokens` is the server's default.
        priority: Lower is sooner.
        tier: 0 interactive, 1 batch.
        retry: How often the client sent it before.
        deadline_ns: Engine time at which it ends, done or not; 0 for none.
        queue_deadline_ns: Engine time until which it has to run; 0 for none.
        request_hash: Keyed hash of the client's own request id, 0 for none.
        adapter: Name of what modifies the model for it, "" for nothing; its KV is never shared
            with that of another adapter.
        frontend_ns: Time from the HTTP server's accept until it was submitted; None unmeasured.
    """

    prompt_token_ids: Seq[int] = ()
    sampling: SamplingParams = field(default_factory=SamplingParams)
    tenant: str = ""
    max_tokens_asked: bool = True
    priority: int = 0
    tier: int = 0
    retry: int = 0
    deadline_ns: int = 0
    queue_deadline_ns: int = 0
    request_hash: int = 0
    simulated: SimulatedContent | None = None
    adapter: str = ""
    frontend_ns: int | None = None

    @property
    def num_prompt_tokens(self) -> int:
        """Return the length of the prompt."""
        if self.simulated is not None:
            return self.simulated.num_prompt_tokens
        return len(self.prompt_token_ids)
