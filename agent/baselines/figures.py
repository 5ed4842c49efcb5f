"""The values of one side's metrics, without any comparison."""

from agent.baselines.estimate import measure, value_of
from agent.baselines.metrics import JUDGED
from agent.baselines.window_series import WindowSeries


def judged_figures(series: WindowSeries) -> dict[str, float | None]:
    """Return the judged metrics by name; None is not measured."""
    return {metric.name: value_of(measure(metric, series)) for metric in JUDGED}
