"""What the engine was asked to do in a window, and whether two windows were asked the same.

A comparison answers for the engine only if the traffic was alike: twice the prompts make every
latency worse without anything being wrong.
"""

from dataclasses import dataclass
from typing import Final

from agent.baselines.window_series import WindowSeries

BAND_RATIO: Final = 0.10  # of the first side's figure
BAND_HIT_SHARE: Final = 0.10  # of a share, absolute


@dataclass(frozen=True, slots=True)
class Traffic:
    """Figures of one window; None is not measured.

    Attributes:
        arrival_rate: First attempts a second: retries follow from how the engine did.
        prompt_tokens, output_tokens: Means per request that was admitted, that ended.
        prefix_hit_share: Of the prompt tokens, how many were found in the prefix cache.
    """

    arrival_rate: float | None
    prompt_tokens: float | None
    output_tokens: float | None
    prefix_hit_share: float | None


@dataclass(frozen=True, slots=True)
class TrafficDifference:
    """One figure that is out of band."""

    name: str
    label: str
    first: float
    second: float


_LABELS: Final = {
    "arrival_rate": "arrivals per second",
    "prompt_tokens": "prompt tokens per request",
    "output_tokens": "output tokens per request",
    "prefix_hit_share": "share of prompt tokens found in the prefix cache",
}


def traffic_of(series: WindowSeries) -> Traffic:
    """Work the figures out of a side's counted intervals."""
    seconds = float(series.is_counted.sum()) * series.tier_seconds
    arrived, retries = series.total("arrived"), series.total("retries") or 0.0
    hits = series.total("prefix_hit_tokens")
    computed = _minus(series.total("prefill_tokens"), series.total("recomputed_tokens") or 0.0)
    prompts = computed if computed is None or hits is None else computed + hits
    return Traffic(
        arrival_rate=_per(_minus(arrived, retries), seconds),
        prompt_tokens=_per(prompts, series.total("admitted")),
        output_tokens=_per(series.total("decode_tokens"), series.total("finished")),
        prefix_hit_share=_per(hits, prompts),
    )


def differences(first: Traffic, second: Traffic) -> tuple[TrafficDifference, ...]:
    """Return the figures that are out of band; what one side did not measure is not among them."""
    return tuple(
        TrafficDifference(name, label, a, b)
        for name, label in _LABELS.items()
        if (a := getattr(first, name)) is not None
        and (b := getattr(second, name)) is not None
        and not _is_alike(name, a, b)
    )


def _is_alike(name: str, a: float, b: float) -> bool:
    if name == "prefix_hit_share":
        return abs(a - b) <= BAND_HIT_SHARE
    return abs(a - b) <= BAND_RATIO * a


def _minus(value: float | None, less: float) -> float | None:
    return None if value is None else value - less


def _per(value: float | None, of: float | None) -> float | None:
    return None if value is None or not of or of <= 0 else value / of
