"""PromQL over the metrics table: every expression of every board is put together here.

All take `Metric` rows, so a metric that is not in the table cannot be queried. No expression fills
a hole with zero: a series that is missing is drawn as missing.
"""

from typing import Final

from agent.metrics.gpu import GPU_TABLE
from agent.metrics.metric import Metric, MetricKind

ENGINES = 'engine=~"$engine"'
RATE_WINDOW = "$__rate_interval"
WHOLE_RANGE = "$__range"
OF_NO_ENGINE: Final = frozenset(GPU_TABLE)  # a machine's, whichever engines are chosen


def select(metric: Metric, suffix: str = "", **labels: str) -> str:
    """Select the chosen engines' series of a metric, narrowed to equal labels.

    A metric of the machine has no engine, and is selected whole.
    """
    unknown = labels.keys() - set(metric.labels)
    if unknown:
        raise ValueError(f"{metric.name} has no label {sorted(unknown)}; it has {metric.labels}")
    equal = [f'{name}="{value}"' for name, value in labels.items()]
    matchers = equal if metric in OF_NO_ENGINE else [ENGINES, *equal]
    narrowed = f"{{{','.join(matchers)}}}" if matchers else ""
    return f"{metric.name}{suffix}{narrowed}"


def total(metric: Metric, by: str | None = None, **labels: str) -> str:
    """Sum a gauge over the chosen engines."""
    return _aggregate("sum", by, select(metric, **labels))


def largest(metric: Metric, by: str | None = None, **labels: str) -> str:
    """Take a gauge's largest value over the chosen engines."""
    return _aggregate("max", by, select(metric, **labels))


def smallest(metric: Metric, by: str | None = None, **labels: str) -> str:
    """Take a gauge's smallest value over the chosen engines."""
    return _aggregate("min", by, select(metric, **labels))


def that_held(metric: Metric, *by: str) -> str:
    """Take those series of a gauge of 0 and 1 that were 1 at some time in the chosen range.

    All their samples stay, the zeros too: what is missing then is a hole that was measured by
    nobody, and no 0.
    """
    labels = ", ".join(by)
    series = _aggregate("max", labels, select(metric))
    once = _aggregate("max", labels, f"max_over_time({select(metric)}[{WHOLE_RANGE}] @ end())")
    return f"{series} and ({once} == 1)"


def per_second(metric: Metric, by: str | None = None, **labels: str) -> str:
    """Sum a counter's rate over the chosen engines."""
    _require(metric, MetricKind.COUNTER)
    return _aggregate("sum", by, f"rate({select(metric, **labels)}[{RATE_WINDOW}])")


def gained(metric: Metric, window: str, **labels: str) -> str:
    """Sum what a counter gained in a window, over the chosen engines."""
    _require(metric, MetricKind.COUNTER)
    return _aggregate("sum", None, f"increase({select(metric, **labels)}[{window}])")


def ratio(part: str, whole: str) -> str:
    """Divide one expression by another; nothing over nothing stays nothing."""
    return f"{part} / {whole}"


def quantile(metric: Metric, q: float) -> str:
    """Estimate a quantile of a histogram over the chosen engines together.

    Without a sample in the window there is none: the NaN that would be given is dropped.
    """
    _require(metric, MetricKind.HISTOGRAM)
    buckets = _aggregate("sum", "le", f"rate({select(metric, '_bucket')}[{RATE_WINDOW}])")
    return f"histogram_quantile({q}, {buckets}) >= 0"


def _require(metric: Metric, kind: MetricKind) -> None:
    if metric.kind is not kind:
        raise ValueError(f"{metric.name} is a {metric.kind}, not a {kind}")


def _aggregate(function: str, by: str | None, inner: str) -> str:
    return f"{function} by ({by}) ({inner})" if by else f"{function}({inner})"
