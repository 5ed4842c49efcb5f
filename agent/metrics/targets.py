"""Metrics of targets: they carry the labels `engine` and `target`, and nothing of a model."""

import time
from collections.abc import Callable, Iterable
from typing import Final

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from agent.live_view import LiveView
from agent.metrics.engine_samples import is_fresh
from agent.metrics.metric import Metric, Unit, gauge
from agent.targets.attainment import WINDOWS_SECONDS, Attainment

TARGET_SECONDS: Final = gauge(
    "target_seconds",
    Unit.SECONDS,
    "The time of a target, which is named by its latency: ttft, inter_token, pool_wait.",
    *("engine", "target"),
)
TARGET_OBJECTIVE: Final = gauge(
    "target_objective_ratio",
    Unit.RATIO,
    "The share that is to be within that time, such as 0.99.",
    *("engine", "target"),
)
TARGET_WITHIN: Final = gauge(
    "target_within_ratio",
    Unit.RATIO,
    "The share that was, of the last 5m or 1h up to the newest event: of first tokens, of gaps "
    "between tokens, of waits for blocks. Absent with fewer than 20 of them.",
    *("engine", "target", "window"),
)
TARGET_BURN_RATE: Final = gauge(
    "target_burn_rate",
    Unit.MULTIPLE,
    "How many times faster than the objective allows its error budget was spent over the window: "
    "(1 - within) / (1 - objective). 1 spends exactly all of it. Absent in the same way.",
    *("engine", "target", "window"),
)
TARGET_TABLE: Final[tuple[Metric, ...]] = (
    *(TARGET_SECONDS, TARGET_OBJECTIVE, TARGET_WITHIN, TARGET_BURN_RATE),
)


class TargetCollector(Collector):
    """Gives how engines that write do against their targets; nothing where none are set."""

    def __init__(self, view: LiveView, wall_clock: Callable[[], int] = time.time_ns) -> None:
        self._view = view
        self._wall_clock = wall_clock

    def collect(self) -> Iterable[Family]:
        """Build fresh families; one without samples is left out."""
        families = {metric.name: _family(metric) for metric in TARGET_TABLE}
        snapshot, now_ns = self._view.snapshot(), self._wall_clock()
        for engine, attainments in snapshot.targets.items():
            live = snapshot.engines.get(engine)
            if live is not None and is_fresh(live, now_ns):
                for each in attainments:
                    _add(families, engine, each)
        return [family for family in families.values() if family.samples]

    def describe(self) -> Iterable[Family]:
        """Declare every family of the table, samples or not."""
        return [_family(metric) for metric in TARGET_TABLE]


def _add(families: dict[str, GaugeMetricFamily], engine: str, each: Attainment) -> None:
    labels = (engine, each.target.latency)
    if each.window_seconds == WINDOWS_SECONDS[0]:  # once for each target
        families[TARGET_SECONDS.name].add_metric(labels, each.target.seconds)
        families[TARGET_OBJECTIVE.name].add_metric(labels, each.target.objective_ratio)
    if each.within_ratio is not None and each.burn_rate is not None:
        families[TARGET_WITHIN.name].add_metric((*labels, each.window), each.within_ratio)
        families[TARGET_BURN_RATE.name].add_metric((*labels, each.window), each.burn_rate)


def _family(metric: Metric) -> GaugeMetricFamily:
    return GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
