"""Lines of a histogram's quantiles."""

from typing import Final

from grafana_foundation_sdk.builders import timeseries
from grafana_foundation_sdk.models import dashboard as models

from agent.metrics.metric import Metric
from grafana import colours, queries
from grafana.panel_defaults import chart, painted, query

PERCENTILES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


def quantile_lines(title: str, metric: Metric, description: str) -> timeseries.Panel:
    """Draw a histogram at three quantiles; one without samples gives no series."""
    panel = chart(title, description=description, unit="s")
    for ref_id, (name, q) in zip("ABC", PERCENTILES.items(), strict=True):
        panel = panel.with_target(query(queries.quantile(metric, q), name, ref_id))
    return painted(above_the_last_edge(panel, metric), colours.QUANTILES)


def above_the_last_edge(panel: timeseries.Panel, metric: Metric) -> timeseries.Panel:
    """Show a quantile beyond a histogram's last edge as such.

    `histogram_quantile` gives that edge itself then, whatever the samples were.
    """
    edge = metric.edges[-1]
    shown = models.ValueMappingResult(text=f"> {edge:g} s", index=0)
    return panel.mappings([models.ValueMap(options={f"{edge:g}": shown})])
