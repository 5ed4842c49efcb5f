"""Series for charts: holes stay holes, counters become rates, a part interval is no dip."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from agent.reads.models import Float64Array, Int64Array, LabelledSeries, LatencySeries, Series

Times = npt.NDArray[np.datetime64]
NANOSECONDS = 1_000_000_000
WAIT_CLASSES = ("pool", "scheduler", "quota", "transfer")


@dataclass(frozen=True, slots=True)
class Window:
    """The stretch of time a page looks at, in stored nanoseconds."""

    start_ns: int
    end_ns: int

    @property
    def seconds(self) -> float:
        """Return its length."""
        return (self.end_ns - self.start_ns) / NANOSECONDS


@dataclass(frozen=True, slots=True)
class Curves:
    """Named curves over one time axis, NaN where nobody measured."""

    times: Times
    values: dict[str, Float64Array]
    tier_seconds: int

    @property
    def empty(self) -> bool:
        """Return whether there is nothing at all to draw."""
        return not any(np.isfinite(curve).any() for curve in self.values.values())


def window_of(*, started_at_ns: int, last_event_at_ns: int | None, seconds: int) -> Window:
    """Return the window that ends with the run's last event and starts no earlier than the run."""
    end_ns = (last_event_at_ns or started_at_ns) + 1
    return Window(max(started_at_ns, end_ns - seconds * NANOSECONDS), end_ns)


def window_around(window: Window, at_ns: int, *, seconds: int) -> Window:
    """Return the part of a window that reaches so far to either side of a moment."""
    reach = seconds * NANOSECONDS
    middle = min(max(at_ns, window.start_ns), window.end_ns)
    return Window(max(window.start_ns, middle - reach), min(window.end_ns, middle + reach))


def as_times(t_ns: Int64Array) -> Times:
    """Turn stored nanoseconds into UTC times with the resolution that a chart can show."""
    return (t_ns // 1_000_000).astype("datetime64[ms]")


def with_breaks(
    t_ns: Int64Array, values: Mapping[str, Float64Array], tier_seconds: int
) -> tuple[Int64Array, dict[str, Float64Array]]:
    """Put one NaN into every stretch without rows, so that no line crosses it."""
    step = tier_seconds * NANOSECONDS
    after = np.flatnonzero(np.diff(t_ns) > step * 3 // 2) + 1
    if not len(after):
        return t_ns, dict(values)
    broken = {name: np.insert(curve, after, np.nan) for name, curve in values.items()}
    return np.insert(t_ns, after, t_ns[after - 1] + step), broken


def gauges(series: Series) -> Curves:
    """Return gauges as they were stored."""
    t_ns, values = with_breaks(series.t_ns, series.values, series.tier_seconds)
    return Curves(as_times(t_ns), values, series.tier_seconds)


def rates(series: Series | LabelledSeries, end_ns: int, *, unit: float = 1.0) -> Curves:
    """Return counters per second of engine time, in `unit`s.

    The newest interval is divided by the time that has passed in it. While that is less than half,
    or not known to a good part of it (one second), it is left out: no fall, no spike is made up.
    """
    t_ns, values = series.t_ns, series.values
    elapsed = np.minimum((end_ns - t_ns) / NANOSECONDS, series.tier_seconds)
    keep = elapsed >= series.tier_seconds * (1 if series.tier_seconds == 1 else 0.5)
    per_second = {name: curve[keep] / (elapsed[keep] * unit) for name, curve in values.items()}
    t_ns, per_second = with_breaks(t_ns[keep], per_second, series.tier_seconds)
    return Curves(as_times(t_ns), per_second, series.tier_seconds)


def waits_per_second(series: Series, end_ns: int) -> Curves:
    """Return, per wait class, how many seconds were waited in each second."""
    curves = rates(series, end_ns, unit=NANOSECONDS)
    named = {name: curves.values[f"wait_{name}_ns"] for name in WAIT_CLASSES}
    return Curves(curves.times, named, curves.tier_seconds)


def amounts(series: LabelledSeries) -> Curves:
    """Return labelled counters as amounts per interval, the most frequent label first."""
    moved = {name: curve for name, curve in series.values.items() if np.nansum(curve) > 0}
    order = sorted(moved, key=lambda name: (-float(np.nansum(moved[name])), name))
    return Curves(as_times(series.t_ns), {name: moved[name] for name in order}, series.tier_seconds)


def quantiles(series: LatencySeries) -> Curves:
    """Return a latency's quantiles; an interval without a sample is a hole, not a zero."""
    nothing = series.count == 0
    values = {
        name: np.where(nothing, np.nan, curve)
        for name, curve in (("p50", series.p50), ("p95", series.p95), ("p99", series.p99))
    }
    t_ns, values = with_breaks(series.t_ns, values, series.tier_seconds)
    return Curves(as_times(t_ns), values, series.tier_seconds)


def stretches(curves: Curves, name: str) -> list[slice]:
    """Return the runs of points within which one curve has no hole."""
    known = np.isfinite(curves.values[name])
    edges = np.flatnonzero(np.diff(np.concatenate(([False], known, [False])).astype(np.int8)))
    pairs = edges.reshape(-1, 2).tolist()
    return [slice(start, end) for start, end in pairs]


def total_of(series: Series, name: str) -> float | None:
    """Return a counter's sum over the series; None if no interval measured it."""
    curve = series.values[name]
    return float(np.nansum(curve)) if np.isfinite(curve).any() else None


def peak_of(series: Series, name: str) -> float | None:
    """Return a gauge's largest value over the series; None if no interval measured it."""
    curve = series.values[name]
    return float(np.nanmax(curve)) if np.isfinite(curve).any() else None
