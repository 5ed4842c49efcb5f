"""Push the three `gen_ai.server.*` histograms of OpenTelemetry's convention to a collector.

The ledger's histograms are cumulative since the run began, so a push that failed loses nothing: the
next one holds it. The packages are an extra (`kvpulse-app[otlp]`) and are imported on first use.
Nothing of the convention says blocks, queues or rejections; those stay under our own names.
"""

import logging
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from agent.errors import ConfigError
from agent.live_view import LiveEngine, LiveView
from agent.log_limit import OncePerHour
from agent.rollups.histogram import Histogram
from agent.rollups.rebucket import NS_PER_SECOND, rebucket

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricsData

LOGGER: Final = logging.getLogger(__name__)
SCOPE: Final = "kvpulse"
TIMEOUT_SECONDS: Final = 5.0
# Of the convention's enumeration: the engine sees token sequences, whatever API asked for them.
OPERATION: Final = "text_completion"
PROVIDER: Final = "kvpulse"


class Exported(NamedTuple):
    """One metric of the convention, with the edges that it advises, and what feeds it."""

    name: str
    latency: str
    edges: tuple[float, ...]
    text: str


EXPORTED: Final = (
    Exported(
        "gen_ai.server.request.duration",
        "e2e",
        (
            *(0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48),
            *(40.96, 81.92),
        ),
        "From arrival to the end, of requests that ran to it.",
    ),
    Exported(
        "gen_ai.server.time_to_first_token",
        "ttft",
        (
            *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5),
            *(5.0, 7.5, 10.0),
        ),
        "From arrival to the first token, queue included.",
    ),
    Exported(
        "gen_ai.server.time_per_output_token",
        "tpot",
        (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5),
        "Time from the first token to the end / tokens after the first, per request.",
    ),
)


class OtlpPush:
    """Sends what the engines came to so far, whenever it is told to."""

    def __init__(
        self,
        endpoint: str,
        view: LiveView,
        log_limit: OncePerHour,
        *,
        wall_clock: Callable[[], int] = time.time_ns,
    ) -> None:
        """Prepare to push.

        Raises:
            ConfigError: The packages that it needs are not installed.
        """
        try:
            from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        except ImportError as error:
            accepted = "nothing, or an address once pip install 'kvpulse-app[otlp]' was run"
            raise ConfigError("otlp_endpoint", endpoint, accepted) from error
        # It says each failure many times over; ours says it once an hour.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        self._exporter = OTLPMetricExporter(endpoint=endpoint, timeout=TIMEOUT_SECONDS)
        self._endpoint = endpoint
        self._view = view
        self._log_limit = log_limit
        self._wall_clock = wall_clock

    def push(self) -> bool:
        """Send once; return whether the collector took it. Nothing to send counts as taken."""
        engines = list(self._view.snapshot().engines.values())
        if not engines:
            return True
        try:
            result = self._exporter.export(metrics_data(engines, self._wall_clock()))
            taken, why = bool(result.name == "SUCCESS"), "refused, or out of reach"
        except Exception as error:  # noqa: BLE001 - somebody else's collector must not stop the agent
            taken, why = False, f"{type(error).__name__}: {error}"
        if not taken and self._log_limit.is_due("push"):
            LOGGER.warning("OTLP push to %s: %s; trying on", self._endpoint, why)
        return taken


def metrics_data(engines: Sequence[LiveEngine], now_ns: int) -> "MetricsData":
    """Return the SDK's form of every engine's three histograms; one without samples is left out."""
    from opentelemetry.sdk.metrics import export
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    cumulative = export.AggregationTemporality.CUMULATIVE
    metrics = [
        export.Metric(
            name=each.name,
            description=each.text,
            unit="s",
            data=export.Histogram(data_points=points, aggregation_temporality=cumulative),
        )
        for each in EXPORTED
        if (points := [p for engine in engines if (p := _point(engine, each, now_ns))])
    ]
    scope = export.ScopeMetrics(scope=InstrumentationScope(SCOPE), metrics=metrics, schema_url="")
    resource = Resource({"service.name": SCOPE})
    return export.MetricsData([export.ResourceMetrics(resource, [scope], schema_url="")])


def _point(engine: LiveEngine, exported: Exported, now_ns: int) -> Any:
    from opentelemetry.sdk.metrics.export import HistogramDataPoint

    histogram: Histogram = engine.live.histograms[exported.latency]
    if histogram.min_ns is None or histogram.max_ns is None:
        return None
    running = [count for _, count in rebucket(histogram, exported.edges).buckets]
    return HistogramDataPoint(
        attributes=_attributes(engine),
        start_time_unix_nano=engine.started_at_ns,
        time_unix_nano=max(now_ns, engine.started_at_ns),
        count=histogram.count,
        sum=histogram.sum_ns / NS_PER_SECOND,
        bucket_counts=[b - a for a, b in zip([0, *running], running, strict=False)],
        explicit_bounds=list(exported.edges),
        min=histogram.min_ns / NS_PER_SECOND,
        max=histogram.max_ns / NS_PER_SECOND,
    )


def _attributes(engine: LiveEngine) -> dict[str, str]:
    attributes = {
        "gen_ai.operation.name": OPERATION,
        "gen_ai.provider.name": PROVIDER,
        "kvpulse.engine": engine.engine,
    }
    model = engine.fingerprint.get("model")
    return attributes if model is None else {**attributes, "gen_ai.request.model": str(model)}
