"""What a comparison looks at: at most eight judged metrics, and others that are only shown.

Few are judged, because each further one makes all intervals wider: these are what a person on call
would act on. Every metric is worked out from sums and histograms of intervals, so that any choice
of intervals has one, and only such can be resampled.
"""

from dataclasses import dataclass
from typing import Final

DEFAULT_FLOOR_RATIO: Final = 0.10


@dataclass(frozen=True, slots=True)
class QuantileMetric:
    """A quantile of a latency over all samples of a window.

    Attributes:
        latency: A name of `agent.rollups.scalars.LATENCIES`.
        ratio: Which quantile, in (0, 1).
        least_change: In seconds; a smaller change never counts, whatever its share.
        floor_ratio: A smaller change, as a share of the first side, never counts.
    """

    name: str
    label: str
    latency: str
    ratio: float
    least_change: float = 0.0
    floor_ratio: float = DEFAULT_FLOOR_RATIO
    unit: str = "s"


@dataclass(frozen=True, slots=True)
class RatioMetric:
    """A counter per another counter over a window; more of it is worse.

    Attributes:
        numerator: A name of `agent.rollups.scalars.COUNTERS`.
        denominator: Another one, or None: per second of counted time.
        scale: What one of the numerator is in the unit, such as 1e-9 for nanoseconds in seconds.
        least_change, floor_ratio, unit: As those of `QuantileMetric`.
        is_count: The numerator counts things, so that none seen is not none there.
    """

    name: str
    label: str
    numerator: str
    denominator: str | None
    scale: float = 1.0
    least_change: float = 0.0
    floor_ratio: float = DEFAULT_FLOOR_RATIO
    unit: str = ""
    is_count: bool = False


Metric = QuantileMetric | RatioMetric

JUDGED: Final[tuple[Metric, ...]] = (
    QuantileMetric("ttft_p50", "TTFT p50", "ttft", 0.50, least_change=0.002),
    QuantileMetric("ttft_p95", "TTFT p95", "ttft", 0.95, least_change=0.005),
    QuantileMetric("inter_token_p50", "inter-token p50", "inter_token", 0.50, least_change=0.0005),
    QuantileMetric("inter_token_p95", "inter-token p95", "inter_token", 0.95, least_change=0.001),
    QuantileMetric("e2e_p95", "end to end p95", "e2e", 0.95, least_change=0.02),
    RatioMetric(
        "pool_wait",
        "pool wait per request",
        "wait_pool_ns",
        "arrived",
        scale=1e-9,
        least_change=0.005,
        unit="s",
    ),
    RatioMetric(
        "rejection_ratio",
        "rejected per request",
        "rejected",
        "arrived",
        least_change=0.001,
        is_count=True,
    ),
    RatioMetric(
        "preemption_ratio",
        "preemptions per request",
        "preempted",
        "arrived",
        least_change=0.01,
        is_count=True,
    ),
)
assert len(JUDGED) <= 8

SHOWN: Final[tuple[Metric, ...]] = (
    QuantileMetric("ttft_p99", "TTFT p99", "ttft", 0.99),
    QuantileMetric("inter_token_p99", "inter-token p99", "inter_token", 0.99),
    QuantileMetric("e2e_p50", "end to end p50", "e2e", 0.50),
    QuantileMetric("queue_p95", "queue time p95", "queue", 0.95),
    RatioMetric(
        "scheduler_wait",
        "scheduler wait per request",
        "wait_scheduler_ns",
        "arrived",
        scale=1e-9,
        unit="s",
    ),
    RatioMetric(
        "quota_wait", "quota wait per request", "wait_quota_ns", "arrived", scale=1e-9, unit="s"
    ),
    RatioMetric("step_seconds", "mean step", "step_ns", "steps", scale=1e-9, unit="s"),
    RatioMetric("output_rate", "output tokens", "decode_tokens", None, unit="1/s"),
    RatioMetric("finish_rate", "finished requests", "finished", None, unit="1/s"),
    RatioMetric("cancelled_ratio", "cancelled per request", "cancelled", "arrived", is_count=True),
    RatioMetric(
        "allocate_failures",
        "allocation failures per request",
        "allocate_failures",
        "arrived",
        is_count=True,
    ),
)

# What is taken of a window: all that the metrics and the traffic are worked out from.
COUNTERS: Final = (
    "arrived",
    "retries",
    "admitted",
    "finished",
    "rejected",
    "cancelled",
    "preempted",
    "prefill_tokens",
    "decode_tokens",
    "recomputed_tokens",
    "prefix_hit_tokens",
    "steps",
    "step_ns",
    "wait_pool_ns",
    "wait_scheduler_ns",
    "wait_quota_ns",
    "allocate_failures",
)
LATENCIES: Final = ("ttft", "inter_token", "e2e", "queue")
