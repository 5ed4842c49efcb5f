"""The columns of `requests` that hold times and numbers, in the table's order."""

from typing import Final

REQUEST_TIMES: Final = (
    "arrived_at_ns",
    "admitted_at_ns",
    "first_token_at_ns",
    "ended_at_ns",
    "deadline_at_ns",
)
REQUEST_NUMBERS: Final = (
    "prompt_tokens",
    "max_tokens",
    "asked_max_tokens",
    "output_tokens",
    "priority",
    "tier",
    "retry",
    "request_hash",  # u64 in two's complement; NULL where the client gave no id
    "logical_blocks",
    "physical_blocks",
    "shared_within",
    "shared_across",
    "peak_blocks",
    "filled_slots",
    "wait_pool_ns",
    "wait_scheduler_ns",
    "wait_quota_ns",
    "wait_transfer_ns",
    "wait_after_preempt_ns",
    "preemptions",
    "recomputed_tokens",
    "prefix_hit_tokens",
    "time_to_first_block_ns",
    "frontend_ns",
    "blocker",  # behind whom it waits now
    "blocked_others_ns",
    "needed_blocks",
    "tokens_lost",
    "tokens_found",
    "blocks_kept",
    "swaps",
    "host_blocks",
)
