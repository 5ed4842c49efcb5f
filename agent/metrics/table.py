"""The one table of Prometheus metrics: name, kind, unit, labels and help.

The exporter fills it, the Grafana boards take their names from it, and `docs/metrics.md` is
generated from it; no metric name is written anywhere else. Every metric carries the labels `engine`
and `model_name` in front of its own. Every label has a bound: the values are an enumeration of
`kvpulse.events`, or, for `tenant`, at most `MAX_TENANTS` aliases and `other`.

Names follow vLLM's stems where the meaning is equal, under a prefix of our own so that one
Prometheus may scrape both; where the meaning differs, so does the name.
"""

from typing import Final

from agent.metrics.capacity import CAPACITY_TABLE
from agent.metrics.metric import Metric, MetricKind, Unit, counter, gauge, histogram
from agent.metrics.sharing import SHARING_TABLE
from agent.rollups.histogram_edges import (
    FIRST_TOKEN_EDGES,
    INTER_TOKEN_EDGES,
    LIFETIME_EDGES,
    REQUEST_EDGES,
    STEP_EDGES,
    WAIT_EDGES,
)

ENGINE_LABELS: Final = ("engine", "model_name")

MAX_TENANTS: Final = 50  # more are folded into OTHER_TENANT
OTHER_TENANT: Final = "other"
NO_TENANT: Final = "none"


KV_BLOCKS: Final = gauge(
    "kv_blocks",
    Unit.BLOCKS,
    "Blocks of the pool by state: active (reference count 1 or more), cached (count 0, content "
    "kept for a prefix hit, may be evicted), free. The three add up to kvpulse_kv_pool_blocks.",
    "state",
)
KV_POOL_BLOCKS: Final = gauge(
    "kv_pool_blocks",
    Unit.BLOCKS,
    "Usable blocks in the pool; a null or padding block is in no count.",
)
KV_CACHE_USAGE: Final = gauge(
    "kv_cache_usage_ratio",
    Unit.RATIO,
    "Referenced (active) blocks / all usable blocks. Cached blocks that nobody holds do not "
    "count as used: they can be taken at once.",
)
KV_REFERENCES: Final = gauge(
    "kv_references",
    Unit.BLOCKS,
    "Sum of reference counts (logical blocks). Above the active blocks by as much as is shared.",
)
KV_FILLED_SLOTS: Final = gauge(
    "kv_filled_slots",
    Unit.TOKENS,
    "Token slots of active blocks that hold a token, each block once. The rest of the active "
    "slots is tail waste. Absent where the engine does not count them.",
)
KV_BLOCK_SIZE: Final = gauge("kv_block_size_tokens", Unit.TOKENS, "Token slots in one block.")
KV_LEAKED_BLOCKS: Final = gauge(
    "kv_leaked_blocks",
    Unit.BLOCKS,
    "Active blocks whose owner ended more than 2 steps and 1 s ago, holds apart. Cached blocks "
    "are never a leak; those whose owner ended in a gap count, too.",
)
KV_HELD_BLOCKS: Final = gauge(
    "kv_held_blocks",
    Unit.BLOCKS,
    "Active blocks kept by a stated hold (a transfer, a pin) instead of a live sequence.",
)
KV_ALLOCATED: Final = counter("kv_allocated_blocks", Unit.BLOCKS, "Blocks taken for new data.")
KV_EVICTED: Final = counter(
    "kv_evicted_blocks",
    Unit.BLOCKS,
    "Cached blocks that lost their content, nearly always to be taken for new data.",
)
REFUSED_FREES: Final = counter(
    "kv_refused_frees",
    Unit.BLOCKS,
    "Blocks that were freed although nobody held them (double frees); the pool refused.",
)
KV_ALLOC_FAILURES: Final = counter(
    "kv_alloc_failures",
    Unit.COUNT,
    "Attempts to allocate blocks that the pool could not serve, by the cause stated.",
    "cause",
)

NUM_RUNNING: Final = gauge(
    "num_requests_running",
    Unit.SEQUENCES,
    "Sequences in the running batch (a request with n choices counts n).",
)
NUM_WAITING: Final = gauge(
    "num_requests_waiting",
    Unit.SEQUENCES,
    "Sequences that wait, by the first cause that holds; preempted ones wait again.",
    "cause",
)
OLDEST_WAIT: Final = gauge(
    "oldest_wait_seconds",
    Unit.SECONDS,
    "How long the sequence that has waited longest has waited so far; 0 when nobody waits.",
)
OLDEST_WAIT_OF_CAUSE: Final = gauge(
    "oldest_wait_of_cause_seconds",
    Unit.SECONDS,
    "The same by cause, since that cause began to hold; 0 where nobody waits for it.",
    "cause",
)
REQUESTS: Final = counter(
    "requests", Unit.REQUESTS, "Requests that arrived, those refused included."
)
REQUESTS_FINISHED: Final = counter(
    "requests_finished",
    Unit.REQUESTS,
    "Requests that ended, by reason; a refused one ends as rejected, one with several samples when "
    "the last of them ends, with that one's reason.",
    "reason",
)
REJECTIONS: Final = counter(
    "admission_rejections",
    Unit.REQUESTS,
    "Requests refused before any token was produced, by reason.",
    "reason",
)
PREEMPTIONS: Final = counter(
    "num_preemptions",
    Unit.COUNT,
    "Running sequences that gave their blocks back and wait again.",
)
RECOMPUTED_TOKENS: Final = counter(
    "recomputed_tokens",
    Unit.TOKENS,
    "Tokens run through the model a second time because a preemption had dropped their blocks, "
    "counted when the sequence ends.",
)
WAIT_SECONDS: Final = counter(
    "wait_seconds",
    Unit.SECONDS,
    "Seconds waited, summed over sequences, counted while the wait lasts. Classes: pool (no "
    "blocks, or behind one that has none), scheduler (batch slots, token budget, busy engine), "
    "quota, transfer. They add up to all queue time.",
    "class",
)
WAIT_CAUSE_SECONDS: Final = counter(
    "wait_cause_seconds", Unit.SECONDS, "The same seconds by each single cause.", "cause"
)
PREFIX_QUERIES: Final = counter(
    "prefix_cache_queries",
    Unit.TOKENS,
    "Prompt tokens looked up in the prefix cache at the first admission; what a preempted sequence "
    "finds again of its own is not counted.",
)
PREFIX_HITS: Final = counter(
    "prefix_cache_hits", Unit.TOKENS, "Of the tokens looked up, those whose blocks were found."
)
PREFILL_TOKENS: Final = counter(
    "prefill_tokens",
    Unit.TOKENS,
    "Prompt tokens run through the model, recomputation included, prefix hits excluded.",
)
DECODE_TOKENS: Final = counter(
    "decode_tokens", Unit.TOKENS, "Tokens run through the model one at a time, to decode."
)
STEPS: Final = counter("steps", Unit.COUNT, "Engine steps taken.")
STEP_PART_SECONDS: Final = counter(
    "step_part_seconds",
    Unit.SECONDS,
    "Seconds of engine steps by part: schedule, compute, sample.",
    "part",
)
ACTIVE_BLOCK_SECONDS: Final = counter(
    "active_block_seconds",
    Unit.BLOCK_SECONDS,
    "Integral of the active blocks over time: what all requests together occupied.",
)
TENANT_BLOCK_SECONDS: Final = counter(
    "tenant_block_seconds",
    Unit.BLOCK_SECONDS,
    "Block-seconds by tenant: a block counts for the tenant that made it active, for as long as it "
    "stays so. Tenants beyond the first 50 are folded into other.",
    "tenant",
)
TENANT_TOKENS: Final = counter(
    "tenant_tokens",
    Unit.TOKENS,
    "Prompt and output tokens of ended requests by tenant, folded in the same way.",
    "tenant",
)
TENANT_ACTIVE_BLOCKS: Final = gauge(
    "tenant_active_blocks",
    Unit.BLOCKS,
    "Active blocks by the tenant that made them active; they add up to all active blocks.",
    "tenant",
)

TIME_TO_FIRST_TOKEN: Final = histogram(
    "time_to_first_token", FIRST_TOKEN_EDGES, "From arrival to the first token, queue included."
)
INTER_TOKEN: Final = histogram(
    "inter_token_latency",
    INTER_TOKEN_EDGES,
    "Between two tokens of one sequence, pauses by preemption included.",
)
TIME_PER_OUTPUT_TOKEN: Final = histogram(
    "request_time_per_output_token",
    INTER_TOKEN_EDGES,
    "Per finished request: time from its first token to its end / tokens after the first.",
)
E2E_LATENCY: Final = histogram(
    "e2e_request_latency", REQUEST_EDGES, "From arrival to the end, of requests that ran to it."
)
PREFILL_TIME: Final = histogram(
    "request_prefill_time", REQUEST_EDGES, "From first admission to the first token."
)
DECODE_TIME: Final = histogram(
    "request_decode_time", REQUEST_EDGES, "From the first token to the end of a request."
)
QUEUE_TIME: Final = histogram(
    "request_queue_time",
    WAIT_EDGES,
    "From arrival to the first admission, or to the end without one; waits after a preemption are "
    "in kvpulse_wait_seconds_total only.",
)
POOL_WAIT: Final = histogram(
    "request_pool_wait",
    WAIT_EDGES,
    "The part of the queue time that was spent because blocks were missing.",
)
SCHEDULER_WAIT: Final = histogram(
    "request_scheduler_wait",
    WAIT_EDGES,
    "The part of the queue time that was spent on batch slots, token budget or a busy engine.",
)
TIME_TO_FIRST_BLOCK: Final = histogram(
    "time_to_first_block", WAIT_EDGES, "From arrival to the first block."
)
BLOCK_LIFETIME: Final = histogram(
    "kv_block_lifetime",
    LIFETIME_EDGES,
    "How long a block stayed active, from its first reference to its last.",
)
STEP_TIME: Final = histogram(
    "step_time", STEP_EDGES, "From the end of one engine step to the next."
)

EVENTS: Final = counter(
    "events",
    Unit.EVENTS,
    "Events of the engine that are in the store, by kind; block kinds count blocks.",
    "kind",
)
EVENTS_LOST: Final = counter(
    "events_lost",
    Unit.EVENTS,
    "Events the engine stated that never reached the store, by kind, counted exactly.",
    "kind",
)
LEDGER_AUDITS: Final = counter(
    "ledger_audits",
    Unit.COUNT,
    "Comparisons of the agent's ledger with the pool's own account, by result (passed, failed). "
    "One failed audit means that ledger and pool disagree.",
    "result",
)
LAW_FAILURES: Final = counter(
    "ledger_law_failures",
    Unit.COUNT,
    "Times a conservation law of the ledger did not hold, such as active + cached + free = total.",
)
BROKEN_LAWS: Final = gauge(
    "ledger_broken_laws",
    Unit.COUNT,
    "Laws and audits of the ledger that do not hold now; the store names what each is about. "
    "0 while all hold, absent from a gap on until the next keyframe.",
)
JOURNAL_LAG: Final = gauge(
    "journal_lag_seconds",
    Unit.SECONDS,
    "How far the agent was behind at its last commit: wall time since it had last read everything "
    "that the engine had written by then.",
)
JOURNAL_BEHIND: Final = gauge(
    "journal_behind_records",
    Unit.RECORDS,
    "Records that the engine has committed and the agent has not read yet.",
)
SOURCE_UP: Final = gauge(
    "source_up",
    Unit.BOOLEAN,
    "1 while the engine writes its journal and the agent reads it, 0 when its writer is finished, "
    "dead or silent. At 0 the gauges of the engine are withheld and its counters stay.",
)
SOURCE_AGE: Final = gauge(
    "source_age_seconds",
    Unit.SECONDS,
    "Wall time since the agent last committed something of this engine.",
)
RUN_START: Final = gauge(
    "run_start_time_seconds",
    Unit.SECONDS,
    "When the engine's newest run began, in seconds since 1970; it changes at a restart, together "
    "with the counters, which start again from 0.",
)
GAPS: Final = counter(
    "gaps", Unit.COUNT, "Stretches of the engine's stream that are known to be missing."
)
ENGINE_INFO: Final = Metric(
    "kvpulse_engine_info",
    MetricKind.INFO,
    Unit.INFO,
    ("kv_format", "block_size", "bytes_per_token", "max_batch", "runner", "version"),
    "What the engine said of itself; always 1. One series per engine, of its newest run.",
)

TABLE: Final = (
    *(KV_BLOCKS, KV_POOL_BLOCKS, KV_CACHE_USAGE, KV_REFERENCES, KV_FILLED_SLOTS, KV_BLOCK_SIZE),
    *(KV_LEAKED_BLOCKS, KV_HELD_BLOCKS, KV_ALLOCATED, KV_EVICTED, REFUSED_FREES),
    KV_ALLOC_FAILURES,
    *(
        NUM_RUNNING,
        NUM_WAITING,
        OLDEST_WAIT,
        OLDEST_WAIT_OF_CAUSE,
        REQUESTS,
        REQUESTS_FINISHED,
        REJECTIONS,
    ),
    *(
        PREEMPTIONS,
        RECOMPUTED_TOKENS,
        WAIT_SECONDS,
        WAIT_CAUSE_SECONDS,
        PREFIX_QUERIES,
        PREFIX_HITS,
    ),
    *(PREFILL_TOKENS, DECODE_TOKENS, STEPS, STEP_PART_SECONDS),
    *(ACTIVE_BLOCK_SECONDS, TENANT_BLOCK_SECONDS, TENANT_TOKENS, TENANT_ACTIVE_BLOCKS),
    *(TIME_TO_FIRST_TOKEN, INTER_TOKEN, TIME_PER_OUTPUT_TOKEN, E2E_LATENCY, PREFILL_TIME),
    *(DECODE_TIME, QUEUE_TIME, POOL_WAIT, SCHEDULER_WAIT, TIME_TO_FIRST_BLOCK, BLOCK_LIFETIME),
    STEP_TIME,
    *SHARING_TABLE,
    *CAPACITY_TABLE,
    *(EVENTS, EVENTS_LOST, LEDGER_AUDITS, LAW_FAILURES, BROKEN_LAWS, JOURNAL_LAG, JOURNAL_BEHIND),
    *(SOURCE_UP, SOURCE_AGE, RUN_START, GAPS, ENGINE_INFO),
)
