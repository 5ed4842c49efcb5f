"""From one engine's live state to samples of `agent/metrics/sharing.py`. Pure."""

from collections.abc import Iterator
from typing import Final

from agent.kv_groups import StatedGroups
from agent.ledger.arrival import PRIORITY_LABELS
from agent.ledger.delta import LiveState
from agent.live_view import LiveEngine
from agent.metrics import sharing as metrics
from agent.metrics.sample import From, Sample
from agent.pool_usage import waste_ratio
from agent.rollups.rebucket import NS_PER_SECOND

SHARING_COUNTERS: Final = (
    From(metrics.KV_COPIED, "copied"),
    From(metrics.FORKS, "forked"),
    From(metrics.TOKENS_LOST, "tokens_lost"),
    From(metrics.TOKENS_FOUND, "resume_hit_tokens"),
)
SHARING_GAUGES: Final = (From(metrics.NUM_SWAPPED, "swapped"),)
SHARING_HISTOGRAMS: Final = (From(metrics.FRONTEND_TIME, "frontend"),)


def sharing_samples(engine: LiveEngine) -> Iterator[Sample]:
    """Give every sample that can be given about sharing, swaps, preemptions and the line."""
    live = engine.live
    yield from _pool(live)
    yield from _copies(engine)
    yield from _preemptions(live)
    yield from _attempts(live)
    yield from _line(live)


def _pool(live: LiveState) -> Iterator[Sample]:
    gauges = live.gauges
    waste = waste_ratio(
        gauges.get("filled_slots"), gauges.get("filled_of_blocks"), live.shape.block_size
    )
    if waste is not None:
        yield Sample(metrics.KV_WASTE, (), waste)
    logical, active = gauges.get("logical_blocks"), gauges.get("active_blocks")
    if logical is not None and active is not None:
        yield Sample(metrics.KV_SHARED, (), logical - active)
    outlived_ns = live.counters["outlived_block_ns"] + live.open_outlived_block_ns
    yield Sample(metrics.KV_OUTLIVED, (), outlived_ns / NS_PER_SECOND)
    if live.host_total_blocks is not None and live.host_active_blocks is not None:
        yield Sample(metrics.HOST_BLOCKS, ("active",), live.host_active_blocks)
        free = live.host_total_blocks - live.host_active_blocks
        yield Sample(metrics.HOST_BLOCKS, ("free",), free)
        if live.host_unreleased is not None:
            yield Sample(metrics.HOST_LEAKED, (), sum(live.host_unreleased.values()))


def _copies(engine: LiveEngine) -> Iterator[Sample]:
    counters, fingerprint = engine.live.counters, engine.fingerprint
    per_block = StatedGroups.read(fingerprint).bytes_per_block(
        fingerprint.get("bytes_per_token"), engine.live.shape.block_size
    )
    if per_block is not None:
        yield Sample(metrics.KV_COPIED_BYTES, (), counters["copied"] * per_block)
    for direction in ("out", "in"):
        blocks = counters[f"swapped_{direction}"]
        yield Sample(metrics.SWAPPED_BLOCKS, (direction,), blocks)
        if per_block is not None:
            yield Sample(metrics.SWAPPED_BYTES, (direction,), blocks * per_block)


def _preemptions(live: LiveState) -> Iterator[Sample]:
    counters = live.counters
    by_swap, kept = counters["preempted_by_swap"], counters["preempt_kept_blocks"]
    recomputed = counters["preempted"] - by_swap
    yield Sample(metrics.PREEMPTIONS_BY_MODE, ("recompute",), recomputed)
    yield Sample(metrics.PREEMPTIONS_BY_MODE, ("swap",), by_swap)
    yield Sample(metrics.PREEMPTED_BLOCKS, ("cached",), kept)
    yield Sample(metrics.PREEMPTED_BLOCKS, ("gone",), counters["preempt_freed_blocks"] - kept)


def _attempts(live: LiveState) -> Iterator[Sample]:
    counters = live.counters
    for metric, of_all, of_retries in (
        (metrics.ARRIVALS, "arrived", "retries"),
        (metrics.REJECTED_ATTEMPTS, "rejected", "rejected_retries"),
    ):
        retries = counters[of_retries]
        yield Sample(metric, ("first",), counters[of_all] - retries)
        yield Sample(metric, ("retry",), retries)
    arrived = live.labelled.get("arrived_priority", {})
    for label in PRIORITY_LABELS:
        yield Sample(metrics.REQUESTS_BY_PRIORITY, (label,), arrived.get(label, 0))
        waiting = live.waiting_by_priority.get(label, 0)
        yield Sample(metrics.WAITING_BY_PRIORITY, (label,), waiting)


def _line(live: LiveState) -> Iterator[Sample]:
    head = live.head_of_line
    booked_ns, runnable = (head.booked_ns, head.runnable_blocks) if head else (0, 0)
    yield Sample(metrics.HEAD_WAIT, (), booked_ns / NS_PER_SECOND)
    yield Sample(metrics.HEAD_RUNNABLE, (), runnable)
