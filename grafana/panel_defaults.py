"""What all panels have in common: data source, legend, tooltip, colours by series name."""

from collections.abc import Mapping
from typing import Final, TypeVar

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, timeseries
from grafana_foundation_sdk.models import common as common_models
from grafana_foundation_sdk.models import dashboard as models

DATASOURCE: Final = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
FULL_WIDTH: Final = 24
STAT_HEIGHT: Final = 3
STAT_VALUE_SIZE: Final = 30
EXACT: Final = "locale"  # 4,096 and not 4.10 K
PER_SECOND: Final = "suffix: /s"
MULTIPLE: Final = "suffix: ×"
CHART_HEIGHT: Final = 9


AnyPanel = TypeVar("AnyPanel", timeseries.Panel, stat.Panel)


def query(expr: str, legend: str, ref_id: str = "A") -> prometheus.Dataquery:
    """Ask for an expression over the board's time range."""
    return (
        prometheus.Dataquery()
        .expr(expr)
        .datasource(DATASOURCE)
        .legend_format(legend)
        .ref_id(ref_id)
        .range()
    )


def thresholds(*steps: tuple[float | None, str]) -> dashboard.ThresholdsConfig:
    """Colour a value by the last step it reaches; the first step has no bound."""
    return (
        dashboard.ThresholdsConfig()
        .mode(models.ThresholdsMode.ABSOLUTE)
        .steps([models.Threshold(value=value, color=colour) for value, colour in steps])
    )


def now_stat(
    title: str, expr: str, *, description: str, unit: str, legend: str | None = None
) -> stat.Panel:
    """Show one number, or the names of several series, as of now.

    The query is instant: the last point of a range would show an engine that died ten minutes ago
    as if it still stood there.
    """
    return (
        stat.Panel()
        .title(title)
        .description(description)
        .datasource(DATASOURCE)
        .with_target(query(expr, legend or title).instant())
        .unit(unit)
        .no_value("not reported")
        .graph_mode(common_models.BigValueGraphMode.NONE)
        .color_mode(common_models.BigValueColorMode.VALUE)
        .text(common.VizTextDisplayOptions().value_size(STAT_VALUE_SIZE))
        .justify_mode(common_models.BigValueJustifyMode.CENTER)
        .height(STAT_HEIGHT)
    )


def chart(title: str, *, description: str, unit: str) -> timeseries.Panel:
    """Start a chart over time, from zero up: lines with a light fill."""
    return zoomed_chart(title, description=description, unit=unit).min(0).fill_opacity(8)


def zoomed_chart(title: str, *, description: str, unit: str) -> timeseries.Panel:
    """Start a chart over time whose axis covers what is there: bare lines, all in the tooltip."""
    return (
        timeseries.Panel()
        .title(title)
        .description(description)
        .datasource(DATASOURCE)
        .unit(unit)
        .line_width(2)
        .fill_opacity(0)
        .show_points(common_models.VisibilityMode.AUTO)
        .legend(legend())
        .tooltip(
            common.VizTooltipOptions()
            .mode(common_models.TooltipDisplayMode.MULTI)
            .sort(common_models.SortOrder.DESCENDING)
        )
        .height(CHART_HEIGHT)
    )


def stacked(panel: timeseries.Panel) -> timeseries.Panel:
    """Stack the series, so that the top edge is their sum."""
    return (
        panel.fill_opacity(80)
        # No lines: that of a series at zero would be drawn along the top of the one below it.
        .line_width(0)
        .show_points(common_models.VisibilityMode.NEVER)
        .stacking(
            common.StackingConfig().mode(common_models.StackingMode.NORMAL).group("A"),
        )
    )


def legend() -> common.VizLegendOptions:
    """List the series under the chart with their last and largest value."""
    return (
        common.VizLegendOptions()
        .show_legend(True)
        .display_mode(common_models.LegendDisplayMode.TABLE)
        .placement(common_models.LegendPlacement.BOTTOM)
        .calcs(["last", "max"])
    )


def legend_off() -> common.VizLegendOptions:
    """Show no legend, where the rows carry the names."""
    return (
        common.VizLegendOptions()
        .show_legend(False)
        .display_mode(common_models.LegendDisplayMode.LIST)
        .placement(common_models.LegendPlacement.BOTTOM)
    )


def painted(panel: AnyPanel, colours: Mapping[str, str]) -> AnyPanel:
    """Give each series, by its name, its fixed colour."""
    for name, colour in colours.items():
        panel = panel.override_by_name(name, [_fixed_colour(colour)])
    return panel


def without_silent_series(panel: timeseries.Panel) -> timeseries.Panel:
    """Leave series that are zero all along out of legend and tooltip; they stay in the data."""
    hidden = {"legend": True, "tooltip": True, "viz": False}
    return panel.with_override(
        models.MatcherConfig(
            id_val="byValue", options={"op": "gte", "reducer": "allIsZero", "value": 0}
        ),
        [option("custom.hideFrom", hidden)],
    )


def option(name: str, value: object) -> models.DynamicConfigValue:
    """Set one option of a field."""
    return models.DynamicConfigValue(id_val=name, value=value)


def _fixed_colour(colour: str) -> models.DynamicConfigValue:
    return option("color", {"mode": "fixed", "fixedColor": colour})
