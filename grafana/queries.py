"""PromQL over the metrics table: every expression of every board is put together here.

All take `Metric` rows, so a metric that is not in the table cannot be queried. No expression fills
a hole with zero: a series that is missing is drawn as missing.
"""

from agent.metrics.metric import Metric, MetricKind

ENGINES = 'engine=~"$engine"'
RATE_WINDOW = "$__rate_interval"
WHOLE_RANGE = "$__range"


def select(metric: Metric, suffix: str = "", **labels: str) -> str:
    """Select the chosen engines' series of a metric, narrowed to equal labels."""
    unknown = labels.keys() - set(metric.labels)
    if unknown:
        raise ValueError(f"{metric.name} has no label {sorted(unknown)}; it has {metric.labels}")
    matchers = [ENGINES, *(f'{name}="{value}"' for name, value in labels.items())]
    return f"{metric.name}{suffix}{{{','.join(matchers)}}}"


def total(metric: Metric, by: str | None = None, **labels: str) -> str:
    """Sum a gauge over the chosen engines."""
    return _aggregate("sum", by, select(metric, **labels))


def largest(metric: Metric, by: str | None = None) -> str:
    """Take a gauge's largest value over the chosen engines."""
    return _aggregate("max", by, select(metric))


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
    """Estimate a quantile of a histogram over the chosen engines together."""
    _require(metric, MetricKind.HISTOGRAM)
    buckets = _aggregate("sum", "le", f"rate({select(metric, '_bucket')}[{RATE_WINDOW}])")
    return f"histogram_quantile({q}, {buckets})"


def _require(metric: Metric, kind: MetricKind) -> None:
    if metric.kind is not kind:
        raise ValueError(f"{metric.name} is a {metric.kind}, not a {kind}")


def _aggregate(function: str, by: str | None, inner: str) -> str:
    return f"{function} by ({by}) ({inner})" if by else f"{function}({inner})"
