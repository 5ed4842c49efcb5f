"""What one row of the metrics table says: name, kind, unit, labels, meaning."""

from dataclasses import dataclass
from enum import StrEnum


class MetricKind(StrEnum):
    """How Prometheus treats the samples."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    INFO = "info"


class Unit(StrEnum):
    """What one of the value is."""

    BLOCKS = "blocks"
    TOKENS = "tokens"
    SEQUENCES = "sequences"
    REQUESTS = "requests"
    SECONDS = "seconds"
    BLOCK_SECONDS = "block-seconds"
    BYTES = "bytes"
    WATTS = "watts"
    CURRENCY = "currency of the configuration"
    RATIO = "ratio, 0 to 1"
    MULTIPLE = "multiple, from 0"
    EVENTS = "events"
    RECORDS = "records"
    COUNT = "count"
    BOOLEAN = "1 or 0"
    INFO = "labels"


@dataclass(frozen=True, slots=True)
class Metric:
    """One row of the table: everything about a metric but its value."""

    name: str
    kind: MetricKind
    unit: Unit
    labels: tuple[str, ...]
    help: str
    edges: tuple[float, ...] = ()

    @property
    def family_name(self) -> str:
        """The name without the suffix that the exposition format adds by itself."""
        suffix = {MetricKind.COUNTER: "_total", MetricKind.INFO: "_info"}.get(self.kind, "")
        return self.name.removesuffix(suffix)


def counter(name: str, unit: Unit, help_text: str, *labels: str) -> Metric:
    """Return a counter under our prefix."""
    return Metric(f"kvpulse_{name}_total", MetricKind.COUNTER, unit, labels, help_text)


def gauge(name: str, unit: Unit, help_text: str, *labels: str) -> Metric:
    """Return a gauge under our prefix."""
    return Metric(f"kvpulse_{name}", MetricKind.GAUGE, unit, labels, help_text)


def histogram(name: str, edges: tuple[float, ...], help_text: str) -> Metric:
    """Return a histogram of seconds under our prefix."""
    full_name = f"kvpulse_{name}_seconds"
    return Metric(full_name, MetricKind.HISTOGRAM, Unit.SECONDS, (), help_text, edges)
