"""From one engine's live state to samples of the metrics table. Pure: no clock, no connection.

Missing is absent: a value that nobody measured gives no sample, never a 0. A counter of something
that did not happen yet is measured, and is 0: every label value is there from the start, so that
the first rejection shows in a rate.
"""

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Final, NamedTuple

from agent.ledger.delta import LiveState
from agent.live_view import LiveEngine
from agent.metrics import table as metrics
from agent.metrics.capacity import capacity_samples
from agent.metrics.metric import Metric, MetricKind
from agent.metrics.sample import From, Sample
from agent.metrics.scraped_samples import scraped_samples
from agent.metrics.sharing_samples import (
    SHARING_COUNTERS,
    SHARING_GAUGES,
    SHARING_HISTOGRAMS,
    sharing_samples,
)
from agent.price import Price
from agent.reads.models import RunState
from agent.rollups.rebucket import NS_PER_SECOND, rebucket
from kvpulse.events import FinishReason, Kind, RejectReason, WaitCause, WaitClass

MISSED_LOOKS: Final = 3  # at a metrics page
STALE_AFTER_SECONDS: Final = 10.0  # an engine that lives states something each second


class FromLabels(NamedTuple):
    """Which labelled numbers feed a metric, and every label value there is."""

    metric: Metric
    family: str
    names: tuple[str, ...]
    divisor: int = 1


def _names(codes: type[WaitCause] | type[RejectReason] | type[FinishReason]) -> tuple[str, ...]:
    return tuple(code.name.lower() for code in codes)


GAUGES: Final = (
    From(metrics.KV_POOL_BLOCKS, "total_blocks"),
    From(metrics.KV_REFERENCES, "logical_blocks"),
    From(metrics.KV_FILLED_SLOTS, "filled_slots"),
    From(metrics.NUM_RUNNING, "running"),
    *SHARING_GAUGES,
)
COUNTERS: Final = (
    From(metrics.KV_ALLOCATED, "allocated"),
    From(metrics.KV_EVICTED, "evicted"),
    From(metrics.REFUSED_FREES, "refused_frees"),
    From(metrics.REQUESTS, "arrived"),
    From(metrics.PREEMPTIONS, "preempted"),
    From(metrics.RECOMPUTED_TOKENS, "recomputed_tokens"),
    From(metrics.PREFIX_QUERIES, "prefix_queried_tokens"),
    From(metrics.PREFIX_HITS, "prefix_hit_tokens"),
    From(metrics.PREFILL_TOKENS, "prefill_tokens"),
    From(metrics.DECODE_TOKENS, "decode_tokens"),
    From(metrics.STEPS, "steps"),
    From(metrics.ACTIVE_BLOCK_SECONDS, "active_block_ns", NS_PER_SECOND),
    *SHARING_COUNTERS,
)
LABELLED: Final = (
    FromLabels(metrics.REJECTIONS, "rejected", _names(RejectReason)),
    FromLabels(metrics.KV_ALLOC_FAILURES, "allocate_failed", _names(WaitCause)),
    FromLabels(metrics.WAIT_CAUSE_SECONDS, "wait_ns", _names(WaitCause), NS_PER_SECOND),
)
TENANT_FAMILIES: Final = (
    FromLabels(metrics.TENANT_BLOCK_SECONDS, "tenant_block_ns", (), NS_PER_SECOND),
    FromLabels(metrics.TENANT_TOKENS, "tenant_tokens", ()),
    FromLabels(metrics.TENANT_ACTIVE_BLOCKS, "tenant_active_blocks", ()),
)
HISTOGRAMS: Final = (
    From(metrics.TIME_TO_FIRST_TOKEN, "ttft"),
    From(metrics.INTER_TOKEN, "inter_token"),
    From(metrics.TIME_PER_OUTPUT_TOKEN, "tpot"),
    From(metrics.E2E_LATENCY, "e2e"),
    From(metrics.PREFILL_TIME, "prefill"),
    From(metrics.DECODE_TIME, "decode"),
    From(metrics.QUEUE_TIME, "queue"),
    From(metrics.POOL_WAIT, "pool_wait"),
    From(metrics.SCHEDULER_WAIT, "scheduler_wait"),
    From(metrics.TIME_TO_FIRST_BLOCK, "time_to_first_block"),
    From(metrics.BLOCK_LIFETIME, "block_lifetime"),
    From(metrics.STEP_TIME, "step"),
    *SHARING_HISTOGRAMS,
)
INFO_KEYS: Final = ("kv_format", "block_size", "bytes_per_token", "max_batch", "runner", "version")


def source_age_seconds(engine: LiveEngine, now_ns: int) -> float:
    """Return the wall time since the agent last committed something of this engine.

    An agent that found the run ended and everything stored has committed nothing itself; then the
    engine's last word counts.
    """
    last_ns = engine.last_commit_at_ns or engine.last_event_at_ns or engine.started_at_ns
    return max(0, now_ns - last_ns) / NS_PER_SECOND


def is_fresh(engine: LiveEngine, now_ns: int) -> bool:
    """Whether the engine writes and the agent reads, so that its gauges describe the present."""
    live = engine.state is RunState.LIVE
    return live and source_age_seconds(engine, now_ns) <= stale_after_seconds(engine)


def stale_after_seconds(engine: LiveEngine) -> float:
    """Return after how long without a commit an engine's gauges describe the past."""
    return max(STALE_AFTER_SECONDS, MISSED_LOOKS * (engine.scrape_seconds or 0.0))


def samples_of(engine: LiveEngine, now_ns: int, price: Price | None = None) -> Iterator[Sample]:
    """Give every sample that can be given about one engine at `now_ns` (wall clock)."""
    fresh = is_fresh(engine, now_ns)
    yield from _source(engine, now_ns, fresh=fresh)
    for sample in _told(engine, price):
        if fresh or sample.metric.kind is not MetricKind.GAUGE:
            yield sample


def _told(engine: LiveEngine, price: Price | None) -> Iterator[Sample]:
    if engine.scrape_seconds is not None:
        return scraped_samples(engine.live)
    return chain(_ledger(engine.live), sharing_samples(engine), capacity_samples(engine, price))


def _source(engine: LiveEngine, now_ns: int, *, fresh: bool) -> Iterator[Sample]:
    yield Sample(metrics.SOURCE_UP, (), float(fresh))
    yield Sample(metrics.SOURCE_AGE, (), source_age_seconds(engine, now_ns))
    yield Sample(metrics.RUN_START, (), engine.started_at_ns / NS_PER_SECOND)
    info = tuple(_text(engine.fingerprint.get(key)) for key in INFO_KEYS)
    yield Sample(metrics.ENGINE_INFO, info, 1.0)
    if fresh and engine.scrape_seconds is None:
        yield Sample(metrics.JOURNAL_BEHIND, (), float(engine.behind_records))
        if engine.lag_seconds is not None:
            yield Sample(metrics.JOURNAL_LAG, (), engine.lag_seconds)


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _ledger(live: LiveState) -> Iterator[Sample]:
    yield from _pool(live)
    yield from _waits(live)
    yield from _ends(live)
    yield from _step_parts(live)
    yield from _tenants(live)
    yield from _telemetry(live)
    yield from _plain(GAUGES, live.gauges)
    yield from _plain(COUNTERS, live.counters)
    for family in LABELLED:
        values = live.labelled.get(family.family, {})
        for name in family.names:
            yield Sample(family.metric, (name,), values.get(name, 0) / family.divisor)
    for metric, key, _ in HISTOGRAMS:
        if key in live.histograms:
            yield Sample(metric, (), rebucket(live.histograms[key], metric.edges))


def _plain(rows: tuple[From, ...], values: Mapping[str, int | None]) -> Iterator[Sample]:
    for metric, key, divisor in rows:
        value = values.get(key)
        if value is not None:
            yield Sample(metric, (), value / divisor)


def _pool(live: LiveState) -> Iterator[Sample]:
    for state in ("active", "cached", "free"):
        value = live.gauges.get(f"{state}_blocks")
        if value is not None:
            yield Sample(metrics.KV_BLOCKS, (state,), value)
    active, total = live.gauges.get("active_blocks"), live.gauges.get("total_blocks")
    if active is not None and total:
        yield Sample(metrics.KV_CACHE_USAGE, (), active / total)
    yield Sample(metrics.KV_BLOCK_SIZE, (), live.shape.block_size)
    yield Sample(metrics.KV_LEAKED_BLOCKS, (), len({leak.block for leak in live.leaks}))
    yield Sample(metrics.KV_HELD_BLOCKS, (), sum(len(hold.blocks) for hold in live.held))


def _waits(live: LiveState) -> Iterator[Sample]:
    for cause, wait in live.waits.items():
        yield Sample(metrics.NUM_WAITING, (cause,), wait.num_waiting)
        begun_ns = live.t_ns if wait.oldest_since_ns is None else wait.oldest_since_ns
        age_ns = live.t_ns - begun_ns
        yield Sample(metrics.OLDEST_WAIT_OF_CAUSE, (cause,), age_ns / NS_PER_SECOND)
    since_ns = live.waiting_since_ns
    oldest_ns = 0 if since_ns is None else live.t_ns - since_ns
    yield Sample(metrics.OLDEST_WAIT, (), oldest_ns / NS_PER_SECOND)
    for wait_class in WaitClass:
        waited_ns = live.counters.get(f"wait_{wait_class.value}_ns")
        if waited_ns is not None:
            yield Sample(metrics.WAIT_SECONDS, (wait_class.value,), waited_ns / NS_PER_SECOND)


def _ends(live: LiveState) -> Iterator[Sample]:
    finished = live.labelled.get("finished", {})
    for reason in _names(FinishReason):
        # A refused request has no `finish` event: `reject` alone states its end.
        key_missing = reason == "rejected" and reason not in finished
        value = live.counters.get("rejected", 0) if key_missing else finished.get(reason, 0)
        yield Sample(metrics.REQUESTS_FINISHED, (reason,), value)


def _step_parts(live: LiveState) -> Iterator[Sample]:
    for part in ("schedule", "compute", "sample"):
        spent_ns = live.counters.get(f"{part}_ns")
        if spent_ns is not None:
            yield Sample(metrics.STEP_PART_SECONDS, (part,), spent_ns / NS_PER_SECOND)


def _tenants(live: LiveState) -> Iterator[Sample]:
    # The first ones defined, not the largest: a choice by size would change and counters fall.
    kept = {live.tenants[key] for key in sorted(live.tenants)[: metrics.MAX_TENANTS]}
    for metric, family, _, divisor in TENANT_FAMILIES:
        folded: dict[str, int] = {}
        for alias, value in live.labelled.get(family, {}).items():
            named = alias or metrics.NO_TENANT
            keep = named in kept or named == metrics.NO_TENANT
            label = named if keep else metrics.OTHER_TENANT
            folded[label] = folded.get(label, 0) + value
        for label, value in sorted(folded.items()):
            yield Sample(metric, (label,), value / divisor)


def _telemetry(live: LiveState) -> Iterator[Sample]:
    for kind in Kind:
        yield Sample(metrics.EVENTS, (kind.name.lower(),), live.stored[kind])
        yield Sample(metrics.EVENTS_LOST, (kind.name.lower(),), live.lost[kind])
    yield Sample(metrics.LEDGER_AUDITS, ("passed",), live.audits_passed)
    yield Sample(metrics.LEDGER_AUDITS, ("failed",), live.audits_failed)
    yield Sample(metrics.LAW_FAILURES, (), live.laws_failed)
    if live.balanced is not None:
        yield Sample(metrics.BROKEN_LAWS, (), len(live.broken_laws))
    yield Sample(metrics.GAPS, (), live.num_gaps)
