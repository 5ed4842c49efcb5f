"""What the scheduler hands a model for one step, and what the model gives back.

A sequence samples a token in a step exactly when the step's chunk reaches its last token:
`num_computed_tokens + num_new_tokens == num_tokens`.
"""

from dataclasses import dataclass, field
from typing import Final, Protocol

from engine.sequence import Sequence

NO_TOKEN: Final = -1


@dataclass(slots=True)
class StepPlan:
    """One step's work. The three per-sequence lists are parallel.

    Attributes:
        step: Number of the step, from 0.
        sequences: What runs, each with its block table already large enough.
        num_new_tokens: Tokens of each to run now, from its `num_computed_tokens` on.
        block_copies: (source, target) blocks to copy before anything is written.
    """

    step: int
    sequences: list[Sequence] = field(default_factory=list)
    num_new_tokens: list[int] = field(default_factory=list)
    block_copies: list[tuple[int, int]] = field(default_factory=list)


@dataclass(slots=True)
class StepResult:
    """What one step gave.

    Attributes:
        token_ids: Parallel to the plan's sequences; NO_TOKEN where none was sampled.
        compute_ns: Time in the model.
        sample_ns: Time spent choosing tokens.
    """

    token_ids: list[int]
    compute_ns: int
    sample_ns: int


@dataclass(frozen=True, slots=True)
class RunnerDescription:
    """What a runner is, for the `config` event and for admission.

    Attributes:
        runner: Its kind, such as "torch" or "simulated".
        bytes_per_token: KV bytes of one token over all layers.
        vocab_size: 0 where there is no vocabulary to check prompts against.
        max_context: Most tokens a sequence can have.
    """

    runner: str
    model: str
    kv_format: str
    bytes_per_token: int
    eos_token_ids: tuple[int, ...]
    vocab_size: int
    max_context: int


class ModelRunner(Protocol):
    """A model that runs steps; it owns the KV memory that the block ids stand for."""

    def execute(self, plan: StepPlan) -> StepResult:
        """Run the plan's tokens through the model and sample where a sequence is complete."""

    def describe(self) -> RunnerDescription:
        """Say what the runner is."""
