"""Charts of what sharing costs, how sequences give way, and who holds up the line."""

from grafana_foundation_sdk.builders import timeseries

from agent.metrics import sharing as metrics
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


def copies_and_swaps() -> timeseries.Panel:
    """Stack blocks copied on a write and swapped out and in."""
    moved = {
        "copied on write": (queries.per_second(metrics.KV_COPIED), "#059669"),
        "swapped out": (queries.per_second(metrics.SWAPPED_BLOCKS, direction="out"), "#db2777"),
        "swapped in": (queries.per_second(metrics.SWAPPED_BLOCKS, direction="in"), "#0891b2"),
    }
    panel = chart(
        "Copies and swaps",
        description="Blocks moved per second; a comb of swaps out and in means that two sequences "
        "push each other out in turn.",
        unit=PER_SECOND,
    )
    for ref_id, (name, (expr, _)) in zip("ABC", moved.items(), strict=True):
        panel = panel.with_target(query(expr, name, ref_id))
    shades = {name: colour for name, (_, colour) in moved.items()}
    return without_silent_series(painted(stacked(panel), shades)).span(8)


def lost_and_found_tokens() -> timeseries.Panel:
    """Draw what preemptions took beside what was found again."""
    panel = (
        chart(
            "Tokens lost and found again",
            description="Found far below lost means that the blocks of preempted sequences are "
            "taken by others at once and all of it is computed again.",
            unit=PER_SECOND,
        )
        .with_target(query(queries.per_second(metrics.TOKENS_LOST), "lost", "A"))
        .with_target(query(queries.per_second(metrics.TOKENS_FOUND), "found again", "B"))
    )
    return painted(panel, {"lost": "#dc2626", "found again": "#7c3aed"}).span(8)


def head_of_line() -> timeseries.Panel:
    """Draw the runnable work that waits behind one sequence."""
    runnable = queries.total(metrics.HEAD_RUNNABLE)
    panel = (
        chart(
            "Runnable blocks behind the head of the line",
            description="Above zero for long means that one large sequence keeps small ones "
            "waiting that would fit; the Requests page names it.",
            unit=EXACT,
        )
        .with_target(query(runnable, "runnable"))
        .fill_opacity(25)
    )
    return painted(panel, {"runnable": colours.WAIT_CLASSES["pool"]}).span(8)
