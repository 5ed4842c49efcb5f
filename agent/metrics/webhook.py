"""The metric of the webhook: it is of the agent, and carries no label of an engine."""

from collections.abc import Iterable
from typing import Final

from prometheus_client.core import CounterMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from agent.live_view import LiveView
from agent.metrics.metric import Metric, Unit, counter

WEBHOOK_DELIVERIES: Final = counter(
    "webhook_deliveries",
    Unit.COUNT,
    "Messages to the webhook that ended, by outcome: delivered, refused (the receiver said no), "
    "failed (away or in trouble for all attempts), dropped (too many waited). Absent without one.",
    "outcome",
)
WEBHOOK_TABLE: Final[tuple[Metric, ...]] = (WEBHOOK_DELIVERIES,)


class WebhookCollector(Collector):
    """Gives what became of the messages; nothing where there is no webhook."""

    def __init__(self, view: LiveView) -> None:
        self._view = view

    def collect(self) -> Iterable[Family]:
        """Build the family anew, with every outcome from the start."""
        counts = self._view.snapshot().webhook
        if counts is None:
            return
        family = _family()
        for outcome, number in counts.items():
            family.add_metric((outcome.value,), number)
        yield family

    def describe(self) -> Iterable[Family]:
        """Declare the family, samples or not."""
        return [_family()]


def _family() -> CounterMetricFamily:
    metric = WEBHOOK_DELIVERIES
    return CounterMetricFamily(metric.family_name, metric.help, labels=metric.labels)
