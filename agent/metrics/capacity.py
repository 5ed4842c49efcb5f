"""Metrics of what the pool still has to give, how fast, and what it costs: part of the table."""

from collections.abc import Iterator
from typing import Final

from agent.live_view import LiveEngine
from agent.metrics.metric import Metric, Unit, gauge, histogram
from agent.metrics.sample import Sample
from agent.price import Price
from agent.rollups.histogram_edges import ALLOCATE_EDGES
from agent.rollups.rebucket import rebucket

STILL_NEEDED: Final = gauge(
    "kv_still_needed_blocks",
    Unit.BLOCKS,
    "Blocks that live sequences may still take to reach their token limits: of all together, and "
    "of the one that may take most. Above free + cached, not all of them can run to their limits.",
    "scope",
)
EXHAUSTION: Final = gauge(
    "kv_exhaustion_seconds",
    Unit.SECONDS,
    "Time until no block is free or cached, at the slopes of the last 10, 30 and 60 s: least and "
    "most. Absent while it is not falling (most: over one of them), and before 10 s are known.",
    "bound",
)
BLOCK_SECOND_COST: Final = gauge(
    "kv_block_second_cost",
    Unit.CURRENCY,
    "What one block costs for one second: price_per_gpu_hour x gpus_per_engine / 3600 / blocks of "
    "the pool. Times kvpulse_tenant_block_seconds_total it is a tenant's cost. Absent without a "
    "price.",
)
ALLOCATE_CALL: Final = histogram(
    "kv_allocate_call",
    ALLOCATE_EDGES,
    "How long the pool took to allocate, recording included: one call for each account of the "
    "pool (each second) is timed, so the count is of samples. Empty where an engine times none, "
    "as a simulated one.",
)
CAPACITY_TABLE: Final[tuple[Metric, ...]] = (
    *(STILL_NEEDED, EXHAUSTION, BLOCK_SECOND_COST, ALLOCATE_CALL),
)


def capacity_samples(engine: LiveEngine, price: Price | None) -> Iterator[Sample]:
    """Give what can be given about one engine."""
    live = engine.live
    needed = live.gauges.get("blocks_needed")
    if needed is not None:
        yield Sample(STILL_NEEDED, ("total",), needed)
    if live.largest_blocks_needed is not None:
        yield Sample(STILL_NEEDED, ("largest",), live.largest_blocks_needed)
    if engine.exhaustion is not None:
        ends = (engine.exhaustion.least_seconds, engine.exhaustion.most_seconds)
        for bound, value in zip(("least", "most"), ends, strict=True):
            if value is not None:
                yield Sample(EXHAUSTION, (bound,), value)
    if "allocate_call" in live.histograms:
        calls = rebucket(live.histograms["allocate_call"], ALLOCATE_CALL.edges)
        yield Sample(ALLOCATE_CALL, (), calls)
    each = price.of_block_second(live.shape.total_blocks) if price is not None else None
    if each is not None:
        yield Sample(BLOCK_SECOND_COST, (), each)
