"""The first row: what triage says of the chosen engines, and since when."""

from typing import Final

from grafana_foundation_sdk.builders import stat, statetimeline
from grafana_foundation_sdk.models import common as common_models
from grafana_foundation_sdk.models import dashboard as models

from agent.metrics import incidents as metrics
from agent.metrics.metric import Metric
from grafana import colours, queries
from grafana.alert_table import OF_VERDICTS, Severity
from grafana.panel_defaults import (
    DATASOURCE,
    EXACT,
    legend_off,
    now_stat,
    option,
    painted,
    query,
    thresholds,
)

TIMELINE_HEIGHT: Final = 7

# As loud as the verdict's alert.
_LOUDNESS: Final = {
    Severity.CRITICAL: colours.BAD,
    Severity.WARNING: colours.WARN,
    Severity.INFO: colours.QUIET,
}
VERDICTS: Final = {
    "healthy": colours.GOOD,
    **{alert.runbook: _LOUDNESS[alert.severity] for alert in OF_VERDICTS},
}


def verdict_stat() -> stat.Panel:
    """Name what leads in the last diagnoses, each verdict once."""
    panel = now_stat(
        "Verdict",
        f"{queries.largest(metrics.VERDICT, 'verdict')} == 1",
        legend="{{verdict}}",
        description="What leads in the last diagnosis of each chosen engine; anything but healthy "
        "has a section in the runbook that says what to do first.",
        unit="none",
    ).text_mode(common_models.BigValueTextMode.NAME)
    return painted(panel, VERDICTS).span(12)


def open_incidents_stat() -> stat.Panel:
    """Count the incidents that are open."""
    return (
        now_stat(
            "Open incidents",
            queries.total(metrics.INCIDENTS_OPEN),
            description="Incidents open now over the chosen engines; zero is good, and "
            "not reported means that no agent has judged an engine.",
            unit=EXACT,
        )
        .thresholds(thresholds((None, colours.GOOD), (1, colours.BAD)))
        .span(6)
    )


def verdict_timeline() -> statetimeline.Panel:
    """Draw which verdict led when, a row for each that did."""
    return _timeline(
        "Leading verdict",
        metrics.VERDICT,
        shown="leads",
        description="What led in the diagnoses, every ten seconds; several rows taking turns are "
        "one trouble with two faces, and a row that stops was not judged any more.",
        empty="No diagnosis in this range",
    )


def incident_timeline() -> statetimeline.Panel:
    """Draw when which incident was open, a row for each that was."""
    return _timeline(
        "Incidents",
        metrics.INCIDENTS_OPEN,
        shown="open",
        description="When an incident of which verdict was open; the row that begins first is "
        "usually the cause of those that follow it.",
        empty="No incident was open in this range",
    )


def _timeline(
    title: str, metric: Metric, *, shown: str, description: str, empty: str
) -> statetimeline.Panel:
    panel = (
        statetimeline.Panel()
        .title(title)
        .description(description)
        .datasource(DATASOURCE)
        .unit("none")
        .no_value(empty)
        .with_target(
            query(queries.that_held(metric, "engine", "verdict"), "{{engine}}: {{verdict}}")
        )
        .show_value(common_models.VisibilityMode.NEVER)
        .merge_values(True)
        .row_height(0.6)
        .line_width(0)
        .fill_opacity(70)
        .legend(legend_off())
        .height(TIMELINE_HEIGHT)
        .span(12)
    )
    for verdict, colour in VERDICTS.items():
        panel = panel.override_by_regexp(f"/: {verdict}$/", [_states(shown, colour)])
    return panel


def _states(shown: str, colour: str) -> models.DynamicConfigValue:
    idle = models.ValueMappingResult(text=f"not {shown}", color=colours.IDLE, index=0)
    held = models.ValueMappingResult(text=shown, color=colour, index=1)
    return option("mappings", [models.ValueMap(options={"0": idle, "1": held})])
