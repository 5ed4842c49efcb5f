"""What the scheduler hands a model for one step, and what the model gives back.

A sequence samples a token in a step exactly when the step's chunk reaches its last token:
`num_computed_tokens + num_new_tokens == num_tokens`.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple, Protocol

from engine.sequence import Sequence

NO_TOKEN: Final = -1


class MoveKind(StrEnum):
    """Between which memories a block's content moves."""

    COPY = "copy"  # gpu to gpu
    SWAP_OUT = "swap_out"  # gpu to host
    SWAP_IN = "swap_in"  # host to gpu


class BlockMove(NamedTuple):
    """One block's content to put into another block; ids are those of the memories of `kind`."""

    kind: MoveKind
    source: int
    target: int


@dataclass(slots=True)
class StepPlan:
    """One step's work. The three per-sequence lists are parallel.

    Attributes:
        step: Number of the step, from 0.
        sequences: What runs, each with its block table already large enough.
        num_new_tokens: Tokens of each to run now, from its `num_computed_tokens` on.
        block_moves: Contents to move before anything is computed, in the order of decision: a
            later move may read what an earlier one wrote, or overwrite what it read.
    """

    step: int
    sequences: list[Sequence] = field(default_factory=list)
    num_new_tokens: list[int] = field(default_factory=list)
    block_moves: list[BlockMove] = field(default_factory=list)


class Candidate(NamedTuple):
    """A token that a beam may go on with, and its natural log-probability."""

    token_id: int
    logprob: float


@dataclass(slots=True)
class StepResult:
    """What one step gave.

    Attributes:
        token_ids: Parallel to the plan's sequences; NO_TOKEN where none was sampled.
        compute_ns: Time in the model.
        sample_ns: Time spent choosing tokens.
        more_tokens: Of a sequence that forks after this step, by index in the plan: the tokens of
            its samples but the first.
        candidates: Of each beam, by index: the best tokens to go on with, twice the beam width,
            best first.
        logprobs: Of each sequence that asked for it, by index: the token's log-probability.
        more_logprobs: Beside `more_tokens`, one each.
    """

    token_ids: list[int]
    compute_ns: int
    sample_ns: int
    more_tokens: dict[int, list[int]] = field(default_factory=dict)
    candidates: dict[int, list[Candidate]] = field(default_factory=dict)
    logprobs: dict[int, float] = field(default_factory=dict)
    more_logprobs: dict[int, list[float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunnerDescription:
    """What a runner is, for the `config` event and for admission.

    Attributes:
        runner: Its kind, such as "torch" or "simulated".
        bytes_per_token: KV bytes of one token over all layers.
        vocab_size: 0 where there is no vocabulary to check prompts against.
        max_context: Most tokens a sequence can have.
        mask: What a position attends to; with the window a part of what identifies content.
        sliding_window: Position p attends to positions above p - window; None attends to all.
        group_windows: The same of each KV group, where the layers are not all alike.
    """

    runner: str
    model: str
    kv_format: str
    bytes_per_token: int
    eos_token_ids: tuple[int, ...]
    vocab_size: int
    max_context: int
    mask: str = "causal"
    sliding_window: int | None = None
    group_windows: tuple[int | None, ...] = ()

    @property
    def windows(self) -> tuple[int | None, ...]:
        """Return the window of each KV group, as `TableSpan` has them."""
        return self.group_windows or (self.sliding_window,)


class ModelRunner(Protocol):
    """A model that runs steps; it owns the KV memory that the block ids stand for."""

    def execute(self, plan: StepPlan) -> StepResult:
        """Run the plan's tokens through the model and sample where a sequence is complete."""

    def describe(self) -> RunnerDescription:
        """Say what the runner is."""
