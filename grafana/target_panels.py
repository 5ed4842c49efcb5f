"""Charts of how users are served, held against the targets that were set."""

from typing import Final

from grafana_foundation_sdk.builders import common, stat, timeseries
from grafana_foundation_sdk.models import common as common_models

from agent.metrics import targets as metrics
from grafana import colours, queries
from grafana.alert_table import BURNING_TIMES
from grafana.panel_defaults import (
    MULTIPLE,
    chart,
    legend,
    now_stat,
    option,
    painted,
    query,
    thresholds,
    zoomed_chart,
)

NO_TARGETS: Final = "No targets are set, or too few requests to judge them"
_DASHED: Final = {"fill": "dash", "dash": [8, 8]}


def fastest_burn_stat() -> stat.Panel:
    """Show how fast the error budget went of the target that fared worst in the last hour."""
    return (
        now_stat(
            "Error budget, last hour",
            queries.largest(metrics.TARGET_BURN_RATE, window="1h"),
            description="The fastest burn rate of all targets and chosen engines; up to 1 the "
            "budget lasts, not reported means no targets or too few requests to judge.",
            unit=MULTIPLE,
        )
        .decimals(1)
        .thresholds(
            thresholds((None, colours.GOOD), (1, colours.WARN), (BURNING_TIMES, colours.BAD))
        )
        .span(6)
    )


def share_within_target() -> timeseries.Panel:
    """Draw the share within each target beside its objective."""
    within = queries.smallest(metrics.TARGET_WITHIN, "target", window="5m")
    objective = queries.largest(metrics.TARGET_OBJECTIVE, "target")
    panel = (
        zoomed_chart(
            "Share within target, last 5 minutes",
            description="The share of first tokens, gaps or waits that were within their time, "
            "of the worst chosen engine; a line below its dashed objective is users kept waiting.",
            unit="percentunit",
        )
        .max(1)
        .no_value(NO_TARGETS)
        .legend(legend().placement(common_models.LegendPlacement.RIGHT))
        .with_target(query(within, "{{target}}", "A"))
        .with_target(query(objective, "{{target}} objective", "B"))
        .override_by_regexp(
            "/objective$/", [option("custom.lineStyle", _DASHED), option("custom.lineWidth", 1)]
        )
    )
    shades = colours.TARGETS | {f"{name} objective": c for name, c in colours.TARGETS.items()}
    return painted(panel, shades).span(12)


def burn_rates() -> timeseries.Panel:
    """Draw how fast each target's error budget is spent, over an hour and over five minutes."""
    panel = (
        chart(
            "Error budget, burn rate",
            description="How many times too fast the budget is spent by the worst chosen engine; "
            f"below 1 is good, both windows above the red line at {BURNING_TIMES} wake somebody.",
            unit=MULTIPLE,
        )
        .decimals(1)
        .no_value(NO_TARGETS)
        .legend(legend().placement(common_models.LegendPlacement.RIGHT))
        .fill_opacity(0)
        .axis_soft_max(BURNING_TIMES)
        .thresholds(
            thresholds((None, "transparent"), (1, colours.WARN), (BURNING_TIMES, colours.BAD))
        )
        .thresholds_style(
            common.GraphThresholdsStyleConfig().mode(common_models.GraphThresholdsStyleMode.DASHED)
        )
        .override_by_regexp("/5m$/", [option("custom.lineWidth", 1)])
    )
    shades: dict[str, str] = {}
    for ref_id, window in (("A", "1h"), ("B", "5m")):
        expr = queries.largest(metrics.TARGET_BURN_RATE, "target", window=window)
        panel = panel.with_target(query(expr, f"{{{{target}}}} {window}", ref_id))
        shades |= {f"{name} {window}": colour for name, colour in colours.TARGETS.items()}
    return painted(panel, shades).span(12)
