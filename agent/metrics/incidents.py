"""Metrics of triage: they carry the labels `engine` and `verdict`, and nothing of a model."""

from collections.abc import Callable, Iterable
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from agent.incidents.board import EngineIncidents, IncidentBoard
from agent.metrics.metric import Metric, MetricKind, Unit, counter, gauge
from agent.triage.verdicts import Verdict

STALE_AFTER_SECONDS: Final = 60.0  # a diagnosis older than that says nothing of now
NS: Final = 1_000_000_000
VERDICTS: Final = tuple(verdict.value for verdict in Verdict)
CONDITIONS: Final = tuple(name for name in VERDICTS if name != Verdict.HEALTHY)

INCIDENTS_OPEN: Final = gauge(
    "incidents_open",
    Unit.BOOLEAN,
    "1 while an incident of this verdict is open and stored, else 0; one series for each verdict "
    "but healthy, from when the engine is first judged.",
    *("engine", "verdict"),
)
INCIDENTS: Final = counter(
    "incidents",
    Unit.COUNT,
    "Incidents that were opened, by the verdict that opened them. It goes on over restarts of the "
    "agent and of the engine.",
    *("engine", "verdict"),
)
VERDICT: Final = gauge(
    "verdict",
    Unit.BOOLEAN,
    "1 for the cause that leads in the last diagnosis, 0 for the others. Absent where there is no "
    "diagnosis of now: the engine has ended in good order, or could not be judged for a minute.",
    *("engine", "verdict"),
)
INCIDENT_TABLE: Final[tuple[Metric, ...]] = (INCIDENTS_OPEN, INCIDENTS, VERDICT)


class IncidentCollector(Collector):
    """Gives what the watch has found and stored."""

    def __init__(self, board: IncidentBoard, wall_clock: Callable[[], int]) -> None:
        self._board = board
        self._wall_clock = wall_clock

    def collect(self) -> Iterable[Family]:
        """Build fresh families; one without samples is left out."""
        families = {metric.name: _family(metric) for metric in INCIDENT_TABLE}
        now_ns = self._wall_clock()
        for engine, incidents in self._board.engines().items():
            for metric, verdict, value in _samples(incidents, now_ns):
                families[metric.name].add_metric((engine, verdict), value)
        return [family for family in families.values() if family.samples]

    def describe(self) -> Iterable[Family]:
        """Declare every family of the table, samples or not."""
        return [_family(metric) for metric in INCIDENT_TABLE]


def _samples(incidents: EngineIncidents, now_ns: int) -> Iterable[tuple[Metric, str, float]]:
    for verdict in CONDITIONS:
        yield INCIDENTS_OPEN, verdict, float(verdict in incidents.open)
        yield INCIDENTS, verdict, float(incidents.opened.get(verdict, 0))
    is_of_now = now_ns - incidents.judged_at_ns < STALE_AFTER_SECONDS * NS
    if incidents.verdict is not None and is_of_now:
        for verdict in VERDICTS:
            yield VERDICT, verdict, float(verdict == incidents.verdict)


def _family(metric: Metric) -> CounterMetricFamily | GaugeMetricFamily:
    if metric.kind is MetricKind.COUNTER:
        return CounterMetricFamily(metric.family_name, metric.help, labels=metric.labels)
    return GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
