"""Charts of waiting, refusal and latency."""

from grafana_foundation_sdk.builders import timeseries

from agent.metrics import table as metrics
from grafana import colours, queries
from grafana.panel_defaults import (
    PER_SECOND,
    chart,
    painted,
    query,
    stacked,
    without_silent_series,
)
from grafana.quantiles import above_the_last_edge, quantile_lines


def waits_by_class() -> timeseries.Panel:
    """Stack the seconds waited per second, by class."""
    panel = chart(
        "Seconds waited per second, by class",
        description="A height of 3 means that three sequences were waiting all the time; "
        "red is missing blocks, violet is the scheduler, and only red is helped by more memory.",
        unit="short",
    ).with_target(query(queries.per_second(metrics.WAIT_SECONDS, "class"), "{{class}}"))
    return without_silent_series(painted(stacked(panel), colours.WAIT_CLASSES)).span(12)


def waits_by_cause() -> timeseries.Panel:
    """Stack the same seconds, by each single cause."""
    panel = chart(
        "Seconds waited per second, by cause",
        description="The same height split further; it says which limit to change: blocks, batch "
        "slots, token budget, a tenant's quota, or none because one request is in the way.",
        unit="short",
    ).with_target(query(queries.per_second(metrics.WAIT_CAUSE_SECONDS, "cause"), "{{cause}}"))
    return without_silent_series(painted(stacked(panel), colours.WAIT_CAUSES)).span(12)


def oldest_wait_by_cause() -> timeseries.Panel:
    """Draw how long the longest wait of each cause has lasted."""
    panel = chart(
        "Longest wait now, by cause",
        description="How long the longest wait of each cause has lasted; saw teeth are a queue "
        "that moves, a straight climb is one that does not.",
        unit="s",
    ).with_target(query(queries.largest(metrics.OLDEST_WAIT_OF_CAUSE, "cause"), "{{cause}}"))
    return without_silent_series(painted(panel, colours.WAIT_CAUSES)).span(12)


def waiting_by_cause() -> timeseries.Panel:
    """Stack the waiting sequences by the first cause that holds for each."""
    panel = chart(
        "Sequences waiting, by cause",
        description="One pool with many pool_behind is one large request blocking the line; many "
        "pool is real shortage, many batch_slots is a full batch.",
        unit="short",
    ).with_target(query(queries.total(metrics.NUM_WAITING, "cause"), "{{cause}}"))
    return without_silent_series(painted(stacked(panel), colours.WAIT_CAUSES)).span(12)


def rejections_by_reason() -> timeseries.Panel:
    """Stack refusals per second, by reason."""
    panel = chart(
        "Rejections, by reason",
        description="Greys are requests that were wrong and will be wrong again; reds are a pool "
        "too small for what was asked, violet a queue too short for the burst.",
        unit=PER_SECOND,
    ).with_target(query(queries.per_second(metrics.REJECTIONS, "reason"), "{{reason}}"))
    return without_silent_series(painted(stacked(panel), colours.REJECT_REASONS)).span(12)


def first_token_quantiles() -> timeseries.Panel:
    """Draw time to first token at three quantiles."""
    return quantile_lines(
        "Time to first token",
        metrics.TIME_TO_FIRST_TOKEN,
        "A p99 that leaves p50 behind is queueing or preemption of some; all three rising "
        "together is a slower step or longer prompts.",
    ).span(8)


def inter_token_quantiles() -> timeseries.Panel:
    """Draw the time between two tokens at three quantiles."""
    return quantile_lines(
        "Time between tokens",
        metrics.INTER_TOKEN,
        "Peaks of p99 alone are preempted sequences or long prefills in the same step; a slow "
        "rise of all is a larger batch or longer contexts.",
    ).span(8)


def pool_and_scheduler_wait() -> timeseries.Panel:
    """Draw the p95 of the two parts of the queue time beside it."""
    lines = {
        "queue": (metrics.QUEUE_TIME, "#64748b"),
        "pool": (metrics.POOL_WAIT, colours.WAIT_CLASSES["pool"]),
        "scheduler": (metrics.SCHEDULER_WAIT, colours.WAIT_CLASSES["scheduler"]),
    }
    panel = chart(
        "Queue time, p95",
        description="Which part makes the queue long for the unlucky: where pool follows queue, "
        "blocks are short; where scheduler does, slots or token budget are.",
        unit="s",
    )
    for ref_id, (name, (metric, _)) in zip("ABC", lines.items(), strict=True):
        panel = panel.with_target(query(queries.quantile(metric, 0.95), name, ref_id))
    panel = above_the_last_edge(panel, metrics.QUEUE_TIME)  # all three have the same edges
    return painted(panel, {name: colour for name, (_, colour) in lines.items()}).span(8)
