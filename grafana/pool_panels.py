"""Charts of the block pool: its states, what sharing saves, preemption and prefix reuse."""

from grafana_foundation_sdk.builders import timeseries

from agent.metrics import table as metrics
from grafana import colours, queries
from grafana.panel_defaults import (
    EXACT,
    PER_SECOND,
    chart,
    painted,
    query,
    stacked,
    without_silent_series,
)


def pool_by_state() -> timeseries.Panel:
    """Stack active, cached and free blocks up to the size of the pool."""
    panel = chart(
        "Blocks by state",
        description="Active at the bottom pressing against the top edge is exhaustion; active "
        "that never falls after the load went is a leak.",
        unit=EXACT,
    )
    for ref_id, state in zip("ABC", colours.BLOCK_STATES, strict=True):
        blocks = queries.total(metrics.KV_BLOCKS, state=state)
        panel = panel.with_target(query(blocks, state, ref_id))
    return painted(stacked(panel), colours.BLOCK_STATES).span(16)


def logical_and_active_blocks() -> timeseries.Panel:
    """Draw references beside the blocks they fall on."""
    panel = (
        chart(
            "What sharing saves",
            description="References above active blocks is memory saved by sharing; the two lines "
            "on each other under a shared prompt means that the prefix cache is not used.",
            unit=EXACT,
        )
        .with_target(query(queries.total(metrics.KV_REFERENCES), "references", "A"))
        .with_target(query(queries.total(metrics.KV_BLOCKS, state="active"), "active blocks", "B"))
    )
    return painted(panel, {"references": "#0891b2", "active blocks": colours.ACTIVE}).span(8)


def preemptions() -> timeseries.Panel:
    """Draw preemptions per second."""
    panel = (
        chart(
            "Preemptions",
            description="Running sequences losing their blocks; a steady rate means that more is "
            "admitted than the pool can finish.",
            unit=PER_SECOND,
        )
        .with_target(query(queries.per_second(metrics.PREEMPTIONS), "preemptions"))
        .fill_opacity(25)
    )
    return painted(panel, {"preemptions": "#dc2626"}).span(8)


def recomputed_tokens() -> timeseries.Panel:
    """Stack useful and repeated tokens of the model's work."""
    repeated = queries.per_second(metrics.RECOMPUTED_TOKENS)
    prefill = queries.per_second(metrics.PREFILL_TOKENS)
    decode = queries.per_second(metrics.DECODE_TOKENS)
    panel = (
        chart(
            "Tokens through the model",
            description="Recomputed tokens (a part of prefill) are work done twice after a "
            "preemption; once they rival decode, admitting less would finish more.",
            unit="short",
        )
        .with_target(query(prefill, "prefill", "A"))
        .with_target(query(decode, "decode", "B"))
        .with_target(query(repeated, "recomputed", "C"))
    )
    shades = {"prefill": "#0ea5e9", "decode": "#14b8a6", "recomputed": "#dc2626"}
    return painted(panel, shades).span(8)


def prefix_hit_ratio() -> timeseries.Panel:
    """Draw which share of the looked-up prompt tokens was found in the cache."""
    hits = queries.per_second(metrics.PREFIX_HITS)
    looked_up = queries.per_second(metrics.PREFIX_QUERIES)
    panel = (
        chart(
            "Prefix hit ratio",
            description="Prompt tokens found in the cache out of those looked up; a fall at equal "
            "traffic means that cached blocks are evicted too early or prompts changed.",
            unit="percentunit",
        )
        .max(1)
        .with_target(query(queries.ratio(hits, looked_up), "hit ratio"))
        .fill_opacity(25)
    )
    return painted(panel, {"hit ratio": colours.CACHED}).span(8)


def allocation_failures() -> timeseries.Panel:
    """Stack failed allocations by the cause stated."""
    panel = chart(
        "Failed allocations",
        description="Attempts that the pool could not serve, by cause; many while blocks are free "
        "points at quotas or watermarks and not at the pool's size.",
        unit=PER_SECOND,
    ).with_target(query(queries.per_second(metrics.KV_ALLOC_FAILURES, "cause"), "{{cause}}"))
    return without_silent_series(painted(stacked(panel), colours.WAIT_CAUSES)).span(12)
