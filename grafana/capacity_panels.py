"""Charts of how long the pool will last, and of what it costs to allocate from it."""

from typing import Final

from grafana_foundation_sdk.builders import timeseries

from agent.metrics import capacity as metrics
from grafana import colours, queries
from grafana.panel_defaults import chart, painted, query
from grafana.quantiles import quantile_lines

SHOWN_UP_TO_SECONDS: Final = 900.0  # what is further off would flatten the minutes that matter
EXHAUSTION_BOUNDS: Final = {"least": colours.BAD, "most": colours.WARN}


def time_to_exhaustion() -> timeseries.Panel:
    """Draw when no block will be free or cached, at the slopes of now."""
    panel = chart(
        "Time until the pool is used up",
        description="At the slopes of the last minute, least and most; no line is good, the room "
        "does not shrink, and one that falls towards zero is the time that is left to act.",
        unit="dthms",
    )
    panel = panel.max(SHOWN_UP_TO_SECONDS).no_value("Room is not shrinking, or not known")
    for ref_id, bound in zip("AB", EXHAUSTION_BOUNDS, strict=True):
        soonest = queries.smallest(metrics.EXHAUSTION, bound=bound)
        panel = panel.with_target(query(soonest, bound, ref_id))
    return painted(panel, EXHAUSTION_BOUNDS).span(12)


def allocation_time() -> timeseries.Panel:
    """Draw how long the pool takes to allocate, at three quantiles."""
    return (
        quantile_lines(
            "Time of an allocation",
            metrics.ALLOCATE_CALL,
            "One call a second is timed, recording included; tens of microseconds are good, a p99 "
            "of milliseconds delays each step of the engine.",
        )
        .no_value("No allocation was timed")
        .span(12)
    )
