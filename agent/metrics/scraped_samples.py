"""From a scraped engine's newest look to samples of the metrics table. Pure.

Only what the page tells becomes a sample: it knows no owners, causes, events or laws, and a 0 for
them would say that there are none.
"""

from collections.abc import Iterator
from typing import Final

from agent.ledger.delta import LiveState
from agent.metrics import table as metrics
from agent.metrics.sample import From, Sample
from agent.rollups.rebucket import rebucket
from agent.scraped.look import CAPACITY

GAUGES: Final = (
    From(metrics.KV_POOL_BLOCKS, "total_blocks"),
    From(metrics.NUM_RUNNING, "running"),
)
COUNTERS: Final = (
    From(metrics.PREEMPTIONS, "preempted"),
    From(metrics.RECOMPUTED_TOKENS, "recomputed_tokens"),
    From(metrics.PREFIX_QUERIES, "prefix_queried_tokens"),
    From(metrics.PREFIX_HITS, "prefix_hit_tokens"),
    From(metrics.PREFILL_TOKENS, "prefill_tokens"),
    From(metrics.DECODE_TOKENS, "decode_tokens"),
    From(metrics.STEPS, "steps"),
)
HISTOGRAMS: Final = (
    From(metrics.TIME_TO_FIRST_TOKEN, "ttft"),
    From(metrics.INTER_TOKEN, "inter_token"),
    From(metrics.TIME_PER_OUTPUT_TOKEN, "tpot"),
    From(metrics.E2E_LATENCY, "e2e"),
    From(metrics.PREFILL_TIME, "prefill"),
    From(metrics.DECODE_TIME, "decode"),
    From(metrics.QUEUE_TIME, "queue"),
)


def scraped_samples(live: LiveState) -> Iterator[Sample]:
    """Give every sample that a look can give."""
    active, total = live.gauges.get("active_blocks"), live.gauges.get("total_blocks")
    if active is not None and total:
        yield Sample(metrics.KV_BLOCKS, ("active",), active)
        yield Sample(metrics.KV_CACHE_USAGE, (), active / total)
    yield Sample(metrics.KV_BLOCK_SIZE, (), live.shape.block_size)
    waiting = live.gauges.get("waiting")
    if waiting is not None:
        yield Sample(metrics.NUM_WAITING, (CAPACITY,), waiting)
    for rows, values in ((GAUGES, live.gauges), (COUNTERS, live.counters)):
        for metric, key, divisor in rows:
            value = values.get(key)
            if value is not None:
                yield Sample(metric, (), value / divisor)
    for metric, key, _ in HISTOGRAMS:
        if live.histograms[key].count:
            yield Sample(metric, (), rebucket(live.histograms[key], metric.edges))
