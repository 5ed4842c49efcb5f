"""The Prometheus side of the agent: a collector that turns the live view into families at a scrape.

Nothing is kept between scrapes and no global registry is touched: the ledger is the truth.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector, CollectorRegistry

from agent.incidents.board import IncidentBoard
from agent.live_view import LiveEngine, LiveView
from agent.metrics.engine_samples import samples_of
from agent.metrics.gpu import GpuCollector
from agent.metrics.incidents import IncidentCollector
from agent.metrics.metric import Metric, MetricKind
from agent.metrics.sample import Sample
from agent.metrics.table import ENGINE_LABELS, TABLE
from agent.metrics.targets import TargetCollector
from agent.metrics.webhook import WebhookCollector
from agent.price import Price
from agent.rollups.rebucket import Bucketed

UNKNOWN_MODEL: Final = "unknown"


class LiveCollector(Collector):
    """Gives the families of every engine that the agent knows."""

    def __init__(
        self,
        view: LiveView,
        wall_clock: Callable[[], int] = time.time_ns,
        price: Price | None = None,
    ) -> None:
        self._view = view
        self._wall_clock = wall_clock
        self._price = price

    def collect(self) -> Iterable[Family]:
        """Build fresh families, in the table's order; one without samples is left out."""
        families = {metric.name: _family(metric) for metric in TABLE}
        now_ns = self._wall_clock()
        for engine in self._view.snapshot().engines.values():
            prefix = (engine.engine, _model_name(engine))
            for sample in samples_of(engine, now_ns, self._price):
                _add(families[sample.metric.name], prefix, sample)
        return [family for family in families.values() if family.samples]

    def describe(self) -> Iterable[Family]:
        """Declare every family of the table, samples or not."""
        return [_family(metric) for metric in TABLE]


def exporter_registry(
    view: LiveView,
    wall_clock: Callable[[], int] = time.time_ns,
    price: Price | None = None,
    incidents: IncidentBoard | None = None,
) -> CollectorRegistry:
    """Return a registry of its own holding the collectors."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(LiveCollector(view, wall_clock, price))
    registry.register(GpuCollector(view, wall_clock))
    registry.register(IncidentCollector(incidents or IncidentBoard(), wall_clock))
    registry.register(TargetCollector(view, wall_clock))
    registry.register(WebhookCollector(view))
    return registry


def _model_name(engine: LiveEngine) -> str:
    model = engine.fingerprint.get("model")
    return str(model) if model is not None else UNKNOWN_MODEL


def _family(metric: Metric) -> Family:
    if metric.kind is MetricKind.HISTOGRAM:
        return HistogramMetricFamily(metric.name, metric.help, labels=ENGINE_LABELS)
    if metric.kind is MetricKind.INFO:
        return InfoMetricFamily(metric.family_name, metric.help, labels=ENGINE_LABELS)
    labels = (*ENGINE_LABELS, *metric.labels)
    if metric.kind is MetricKind.COUNTER:
        return CounterMetricFamily(metric.family_name, metric.help, labels=labels)
    return GaugeMetricFamily(metric.name, metric.help, labels=labels)


def _add(family: Family, prefix: Sequence[str], sample: Sample) -> None:
    value = sample.value
    if isinstance(value, Bucketed):
        assert isinstance(family, HistogramMetricFamily)
        family.add_metric(prefix, list(value.buckets), value.sum_seconds)
    elif isinstance(family, InfoMetricFamily):
        family.add_metric(prefix, dict(zip(sample.metric.labels, sample.labels, strict=True)))
    else:
        assert isinstance(family, GaugeMetricFamily | CounterMetricFamily)
        family.add_metric((*prefix, *sample.labels), value)
