"""One run of tokens with one block table: what the scheduler moves and the pool's owners are.

The fields are plain attributes, since the scheduler touches each running sequence at every step.
A sequence that was told its place in a step (`StepPlan`) has KV for the tokens
[0, num_computed_tokens) and runs the next ones; the block table always covers them.
"""

from enum import StrEnum
from typing import TYPE_CHECKING

from engine.block_table import BlockTable
from engine.request import Request
from engine.sampling_params import SamplingParams
from kvpulse.events import WaitCause

if TYPE_CHECKING:
    from engine.forks.gang import Gang
    from engine.prefix_index.radix_index import ContentKey

NEVER = 1 << 62


class SequenceStatus(StrEnum):
    """Where a sequence is in its life."""

    WAITING = "waiting"
    RUNNING = "running"
    PREEMPTED = "preempted"  # waits again, without blocks
    SWAPPED = "swapped"  # waits again, its KV kept in host blocks
    FINISHED = "finished"


class Sequence:
    """A live sequence.

    Attributes:
        seq_id: Its number, from 1 in order of arrival; the owner in every event.
        token_ids: Prompt and generated tokens; a simulated sequence holds the generated ones only.
        num_tokens: Prompt and generated tokens, counted.
        num_computed_tokens: KV is present for [0, num_computed_tokens).
        max_num_tokens: Length at which it ends; max_tokens after clamping to the context.
        prefilling: True from admission (or resumption) until it has sampled again.
        num_slots: Tokens that fit into its block table.
        block_hashes: Content identity of its leading full blocks, as far as known.
        content_key: Its leading full blocks as the radix index compares them; follows the tokens.
        num_hashed_blocks: How many leading blocks were offered to the prefix cache.
        computed_from: Tokens that it found in the prefix cache when it last began to run.
        next_hash_at: Computed tokens at which its next full block is offered.
        root_id: The number that `submit` gave its request; its own, unless it was forked.
        parent_id: The sequence it split off, 0 if none.
        sample_index: Which sample of its request it is, from 0.
        shares_tail: True while a block that it will write may be shared: `reach` is needed
            although the table has room.
        gang: The beam group it belongs to: its members run, wait and end together.
        host_block_ids: Host blocks that keep its KV while it is swapped out, in table order.
        plain_sampling: True when a step gives it one token and nothing else is asked.
        num_slots_reserved: Places in the batch that it takes: all samples while unforked.
        rank_ns: When it counts as having come, after priority, tier and fairness (see
            `engine.policy.ranking`); lower goes first, and it never changes.
        deadline_ns: Engine time at which it ends with a timeout, 0 for none.
        queue_deadline_ns: Engine time until which it has to run for the first time, 0 for none.
        ran: True once it was admitted.
        num_shared_blocks: Leading blocks that it will share with the first of its gang when the
            gang comes back after a preemption.
        protected_until: Output tokens before which nobody takes its place at admission.
    """

    __slots__ = (
        "arrived_ns",
        "block_hashes",
        "block_table",
        "computed_from",
        "content_key",
        "deadline_ns",
        "finished_computed_tokens",
        "first_token_ns",
        "gang",
        "host_block_ids",
        "max_num_tokens",
        "next_hash_at",
        "num_computed_tokens",
        "num_hashed_blocks",
        "num_preemptions",
        "num_prompt_tokens",
        "num_shared_blocks",
        "num_slots",
        "num_slots_reserved",
        "num_tokens",
        "parent_id",
        "plain_sampling",
        "prefilling",
        "priority",
        "protected_until",
        "queue_deadline_ns",
        "ran",
        "rank_ns",
        "recompute_until",
        "recomputed_tokens",
        "refusal_recorded",
        "request",
        "root_id",
        "sample_index",
        "sampling",
        "seq_id",
        "shares_tail",
        "since_ns",
        "status",
        "stop_at",
        "stop_ids",
        "tenant",
        "tier",
        "token_ids",
        "wait_blocker",
        "wait_cause",
        "wait_flags",
        "wait_level",
        "wait_watched",
    )

    def __init__(
        self,
        seq_id: int,
        request: Request,
        *,
        block_size: int,
        tenant: int = 0,
        num_groups: int = 1,
    ) -> None:
        self.seq_id = seq_id
        self.request = request
        self.sampling: SamplingParams = request.sampling
        self.tenant = tenant
        self.tier = request.tier
        self.priority = request.priority
        self.root_id = seq_id
        self.parent_id = 0
        self.sample_index = 0
        self.shares_tail = False
        self.gang: Gang | None = None
        self.host_block_ids: list[int] = []
        self.num_slots_reserved = request.sampling.num_sequences
        self.plain_sampling = self.num_slots_reserved == 1 and not request.sampling.wants_logprobs
        self.rank_ns = 0
        self.deadline_ns = 0
        self.queue_deadline_ns = 0
        self.ran = False
        self.protected_until = 0
        self.num_shared_blocks = 0
        self.token_ids: list[int] = list(request.prompt_token_ids)
        self.num_prompt_tokens = request.num_prompt_tokens
        self.num_tokens = self.num_prompt_tokens
        self.num_computed_tokens = 0
        self.max_num_tokens = self.num_prompt_tokens + request.sampling.max_tokens
        self.stop_ids: frozenset[int] = frozenset(request.sampling.stop_token_ids)
        self.stop_at = NEVER  # a simulated one ends by itself at this length
        if request.simulated is not None:
            self.stop_at = self.num_prompt_tokens + request.simulated.num_output_tokens
        self.status = SequenceStatus.WAITING
        self.prefilling = True
        self.block_table = BlockTable(block_size, num_groups)
        self.num_slots = 0
        self.block_hashes: list[int] = []
        self.content_key: ContentKey | None = None
        self.num_hashed_blocks = 0
        self.next_hash_at = NEVER
        # Account of its life, for `finish` and keyframes.
        self.arrived_ns = 0
        self.since_ns = 0  # of the present state or wait cause
        self.first_token_ns = 0
        self.num_preemptions = 0
        self.computed_from = 0  # tokens found in the prefix cache when it last began to run
        self.finished_computed_tokens = 0  # computed in runs that a preemption ended
        self.recomputed_tokens = 0
        self.recompute_until = 0  # positions below this were computed before
        # Verdict of the last pass while it waits; see `wait_causes`.
        self.wait_cause = WaitCause.ENGINE_BUSY
        self.wait_flags = 0
        self.wait_blocker = 0
        self.wait_level = 0
        self.wait_watched: list[int] | None = None
        self.refusal_recorded = False

    @property
    def num_output_tokens(self) -> int:
        """Return how many tokens were generated."""
        return self.num_tokens - self.num_prompt_tokens

    @property
    def computed_tokens(self) -> int:
        """Return the tokens run through the model for it, recomputation included."""
        return self.finished_computed_tokens + self.num_computed_tokens - self.computed_from

    @property
    def output_token_ids(self) -> list[int]:
        """Return the generated tokens."""
        return self.token_ids[len(self.token_ids) - self.num_output_tokens :]

    def __repr__(self) -> str:
        return (
            f"Sequence({self.seq_id}, {self.status}, {self.num_computed_tokens}/{self.num_tokens} "
            f"tokens, {len(self.block_table)} blocks)"
        )
