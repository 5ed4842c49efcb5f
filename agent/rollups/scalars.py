"""The metrics of a rollup row by name and order: what ledger, store, reads and pages agree on.

`RollupRow.values` has one value for each name of `COLUMNS`, in that order.
"""

from typing import Final, NamedTuple

TIERS: Final = (1, 10, 60, 3600)  # seconds; each divides the next

# The last value in the interval. Those of RANGED_GAUGES also carry the least and the greatest.
GAUGES: Final = (
    "active_blocks",
    "cached_blocks",
    "free_blocks",
    "total_blocks",
    "filled_slots",
    "logical_blocks",
    "running",
    "waiting",
    "live_sequences",
    "blocks_needed",
    "filled_of_blocks",  # active blocks at the moment when `filled_slots` was stated
    "host_active_blocks",  # NULL where the engine has no host blocks
    "host_total_blocks",
    "swapped",  # sequences whose blocks are in host memory
)
RANGED_GAUGES: Final = ("active_blocks", "cached_blocks", "free_blocks")
RANGES: Final = tuple(f"{name}_{end}" for name in RANGED_GAUGES for end in ("min", "max"))

# Sums over the interval.
COUNTERS: Final = (
    "allocated",
    "shared",
    "freed",
    "evicted",
    "cached_new",
    "copied",
    "preempted",
    "resumed",
    "arrived",
    "admitted",
    "finished",  # requests: a forked one when its last sequence ends
    "rejected",
    "cancelled",
    "prefill_tokens",
    "decode_tokens",
    "steps",
    "step_ns",
    "schedule_ns",
    "compute_ns",
    "sample_ns",
    "prefix_hit_tokens",
    "prefix_queried_tokens",
    "resume_hit_tokens",
    "recomputed_tokens",
    "tokens_lost",
    "allocate_failures",
    "wait_pool_ns",
    "wait_scheduler_ns",
    "wait_quota_ns",
    "wait_transfer_ns",
    "wait_after_preempt_ns",  # the part of the four above that passed after a preemption
    "active_block_ns",
    "refused_frees",
    "forked",
    "events_stored",
    "events_lost",
    "audits_passed",
    "audits_failed",
    "sequences_finished",
    "swapped_out",  # blocks moved
    "swapped_in",
    "preempted_by_swap",  # of `preempted`
    "preempt_freed_blocks",
    "preempt_kept_blocks",  # of those freed, kept as cached
    "retries",  # of `arrived`
    "rejected_retries",  # of `rejected`
    "outlived_block_ns",  # active after the first holder had let go, when that ends
)

# What the first revision did not have: older states lack them.
ADDED_COLUMNS: Final = frozenset({*GAUGES[10:], *COUNTERS[COUNTERS.index("sequences_finished") :]})

COLUMNS: Final = GAUGES + RANGES + COUNTERS
COLUMN_INDEX: Final = {name: i for i, name in enumerate(COLUMNS)}

LATENCIES: Final = (
    "ttft",
    "inter_token",
    "tpot",
    "e2e",
    "queue",
    "pool_wait",
    "scheduler_wait",
    "prefill",
    "decode",
    "step",
    "time_to_first_block",
    "block_lifetime",
    "frontend",  # from the server's accepting a request to its arrival in the engine
    "allocate_call",  # of one call in each account of the pool, where the engine times one
)
LATENCY_INDEX: Final = {name: i for i, name in enumerate(LATENCIES)}


class LabelledFamily(NamedTuple):
    """A metric with one label; rows exist for labels that have something to say."""

    name: str
    label: str
    is_gauge: bool  # the last value; otherwise the sum over the interval
    finest_tier: int  # rows exist for this tier and coarser ones


LABELLED: Final = (
    LabelledFamily("rejected", "reason", False, 1),
    LabelledFamily("finished", "reason", False, 1),
    LabelledFamily("allocate_failed", "cause", False, 1),
    LabelledFamily("wait_ns", "cause", False, 1),
    LabelledFamily("arrived_priority", "priority", False, 10),
    LabelledFamily("tenant_block_ns", "tenant", False, 10),
    LabelledFamily("tenant_tokens", "tenant", False, 10),
    LabelledFamily("tenant_active_blocks", "tenant", True, 10),
)
LABELLED_INDEX: Final = {family.name: i for i, family in enumerate(LABELLED)}
