"""Metrics of sharing, swapping, preemption and standing in line: a part of the one table.

`agent/metrics/table.py` puts them into its `TABLE`; nothing else lists metrics.
"""

from typing import Final

from agent.metrics.metric import Metric, Unit, counter, gauge, histogram
from agent.rollups.histogram_edges import WAIT_EDGES

KV_WASTE: Final = gauge(
    "kv_waste_ratio",
    Unit.RATIO,
    "Empty / all token slots of the active blocks, at the moment when the engine counted the "
    "filled ones. Absent where it does not count, and while no block is active.",
)
KV_SHARED: Final = gauge(
    "kv_shared_blocks",
    Unit.BLOCKS,
    "How many more blocks there would have to be if nothing were shared: references less active "
    "blocks.",
)
KV_COPIED: Final = counter(
    "kv_copied_blocks",
    Unit.BLOCKS,
    "Shared blocks that were copied because a holder wrote into them (copy-on-write).",
)
KV_COPIED_BYTES: Final = counter(
    "kv_copied_bytes",
    Unit.BYTES,
    "The same in bytes. Absent where the engine does not state its bytes per token.",
)
KV_OUTLIVED: Final = counter(
    "kv_outlived_block_seconds",
    Unit.BLOCK_SECONDS,
    "What sharing kept alive: how long blocks stayed active after their first holder had let go "
    "of them. It never falls; stretches that still last are counted in.",
)
FORKS: Final = counter(
    "forks",
    Unit.SEQUENCES,
    "Sequences that split off a running one: samples beyond the first, and beams.",
)
SWAPPED_BLOCKS: Final = counter(
    "kv_swapped_blocks",
    Unit.BLOCKS,
    "Blocks copied between gpu and host memory, by direction: out of the gpu or in.",
    "direction",
)
SWAPPED_BYTES: Final = counter(
    "kv_swapped_bytes",
    Unit.BYTES,
    "The same in bytes. Absent where the engine does not state its bytes per token.",
    "direction",
)
HOST_BLOCKS: Final = gauge(
    "kv_host_blocks",
    Unit.BLOCKS,
    "Blocks in host memory by state: active (a swapped-out sequence holds them), free. Absent "
    "where the engine has none.",
    "state",
)
HOST_LEAKED: Final = gauge(
    "kv_host_leaked_blocks",
    Unit.BLOCKS,
    "Blocks in host memory that sequences hold which have ended. Absent while holders are not "
    "known, after a gap.",
)
NUM_SWAPPED: Final = gauge(
    "num_requests_swapped",
    Unit.SEQUENCES,
    "Waiting sequences whose blocks are in host memory.",
)
PREEMPTIONS_BY_MODE: Final = counter(
    "preemptions_by_mode",
    Unit.COUNT,
    "Preemptions by how the blocks were given back: recompute (dropped) or swap (to the host).",
    "mode",
)
PREEMPTED_BLOCKS: Final = counter(
    "preempted_blocks",
    Unit.BLOCKS,
    "Blocks that preemptions gave back: kept as cached, or gone.",
    "outcome",
)
TOKENS_LOST: Final = counter(
    "preempted_tokens_lost",
    Unit.TOKENS,
    "Tokens whose blocks preemptions took; kvpulse_resume_tokens_found_total of them came back "
    "from the cache.",
)
TOKENS_FOUND: Final = counter(
    "resume_tokens_found",
    Unit.TOKENS,
    "Tokens whose blocks a preemption had dropped and which were found again on resuming; what "
    "came back from host memory was not lost. Never part of the hit rate of fresh prompts, "
    "kvpulse_prefix_cache_hits_total.",
)
ARRIVALS: Final = counter(
    "request_attempts",
    Unit.REQUESTS,
    "Requests that arrived, refused ones included: first attempts and retries of the client.",
    "attempt",
)
REJECTED_ATTEMPTS: Final = counter(
    "rejected_attempts",
    Unit.REQUESTS,
    "Of those, the refused ones.",
    "attempt",
)
REQUESTS_BY_PRIORITY: Final = counter(
    "requests_by_priority",
    Unit.REQUESTS,
    "Requests that arrived by priority, in five classes: <-1, -1, 0, 1, >1. The exact one is in "
    "the store alone.",
    "priority",
)
WAITING_BY_PRIORITY: Final = gauge(
    "num_requests_waiting_by_priority",
    Unit.SEQUENCES,
    "Sequences that wait, by the same five classes.",
    "priority",
)
HEAD_WAIT: Final = gauge(
    "head_of_line_booked_seconds",
    Unit.SECONDS,
    "Waiting of others that named the sequence which most wait behind now; 0 when nobody waits "
    "behind anybody.",
)
HEAD_RUNNABLE: Final = gauge(
    "head_of_line_runnable_blocks",
    Unit.BLOCKS,
    "What those behind it need who could run right now; 0 when nobody waits behind anybody.",
)
FRONTEND_TIME: Final = histogram(
    "request_frontend",
    WAIT_EDGES,
    "From the server's accepting a request to its arrival in the engine: parsing, tokenising, "
    "waiting for the engine's thread. Not part of the time to first token.",
)

SHARING_TABLE: Final[tuple[Metric, ...]] = (
    *(KV_WASTE, KV_SHARED, KV_COPIED, KV_COPIED_BYTES, KV_OUTLIVED, FORKS),
    *(SWAPPED_BLOCKS, SWAPPED_BYTES, HOST_BLOCKS, HOST_LEAKED, NUM_SWAPPED),
    *(PREEMPTIONS_BY_MODE, PREEMPTED_BLOCKS, TOKENS_LOST, TOKENS_FOUND),
    *(ARRIVALS, REJECTED_ATTEMPTS, REQUESTS_BY_PRIORITY, WAITING_BY_PRIORITY),
    *(HEAD_WAIT, HEAD_RUNNABLE, FRONTEND_TIME),
)
