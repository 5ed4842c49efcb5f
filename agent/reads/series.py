"""Time series out of the rollups: scalars, latencies, labelled counters."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from sqlalchemy import Connection, text

from agent.errors import UnknownMetricError
from agent.reads.models import (
    Float64Array,
    Int64Array,
    LabelledSeries,
    LatencySeries,
    LatencySummary,
    Series,
)
from agent.reads.repeats import Intervals, expand, first_row_at
from agent.reads.tiers import Stretch, Window, cover
from agent.rollups.histogram import Histogram
from agent.rollups.scalars import (
    COLUMN_INDEX,
    COLUMNS,
    LABELLED,
    LABELLED_INDEX,
    LATENCIES,
    LATENCY_INDEX,
    TIERS,
)

SECONDS_PER_NS: Final = 1e-9
WINDOW: Final = "run_key=:key AND tier_seconds=:tier AND at_ns>=:start AND at_ns<:end"


def read_series(
    connection: Connection, run_key: int, metrics: Sequence[str], window: Window
) -> Series:
    """Return scalar metrics of a window."""
    for name in metrics:
        if name not in COLUMN_INDEX:
            raise UnknownMetricError(name, COLUMNS)
    return read_stretch(connection, run_key, _clip(connection, run_key, window).tier(), metrics)


def read_stretch(
    connection: Connection, run_key: int, stretch: Stretch, metrics: Sequence[str]
) -> Series:
    """Return known scalar metrics of the intervals of one tier."""
    columns, intervals = rollup_rows(connection, run_key, stretch, metrics)
    values = {
        name: _floats(column)[intervals.row_idx]
        for name, column in zip(metrics, columns, strict=True)
    }
    return Series(intervals.at_ns, values, stretch.tier_seconds)


def rollup_rows(
    connection: Connection, run_key: int, stretch: Stretch, metrics: Sequence[str]
) -> tuple[list[list[object]], Intervals]:
    """Return columns of stored rows, and which row stands for each interval of a stretch."""
    names = ["at_ns", "repeats", *metrics]
    query = f"SELECT {', '.join(names)} FROM rollups WHERE {WINDOW} ORDER BY at_ns"
    bind = _bind(run_key, stretch) | {"start": first_row_at(connection, run_key, stretch)}
    at_ns, repeats, *columns = _columns(connection, query, bind, len(names))
    return columns, expand(_ints(at_ns), _ints(repeats), stretch)


def read_latencies(
    connection: Connection, run_key: int, metric: str, window: Window
) -> LatencySeries:
    """Return a latency's quantiles per interval of a window."""
    _check_latency(metric)
    stretch = _clip(connection, run_key, window).tier()
    query = (
        "SELECT at_ns, count, p50_ns, p95_ns, p99_ns, max_ns FROM latencies"
        f" WHERE metric=:metric AND {WINDOW} ORDER BY at_ns"
    )
    bind = {**_bind(run_key, stretch), "metric": metric}
    at_ns, count, *values = _columns(connection, query, bind, 6)
    p50, p95, p99, most = (_floats(column) * SECONDS_PER_NS for column in values)
    return LatencySeries(_ints(at_ns), _ints(count), p50, p95, p99, most, stretch.tier_seconds)


def read_latency_summary(
    connection: Connection, run_key: int, metric: str, window: Window
) -> LatencySummary | None:
    """Return a latency's quantiles over a whole window; None if nothing was measured."""
    return _summary(read_latency_histogram(connection, run_key, metric, window))


def read_latency_histogram(
    connection: Connection, run_key: int, metric: str, window: Window
) -> Histogram:
    """Merge a latency's histograms over a window; empty if nothing was measured."""
    _check_latency(metric)
    clipped = _clip(connection, run_key, window)
    query = text(
        f"SELECT histogram, sum_ns, min_ns, max_ns FROM latencies WHERE metric=:metric AND {WINDOW}"
    )
    merged = Histogram()
    for stretch in cover(clipped.start_ns, clipped.end_ns):
        bind = {**_bind(run_key, stretch), "metric": metric}
        for blob, sum_ns, min_ns, max_ns in connection.execute(query, bind):
            merged.merge(Histogram.decode(bytes(blob), sum_ns=sum_ns, min_ns=min_ns, max_ns=max_ns))
    return merged


def _summary(merged: Histogram) -> LatencySummary | None:
    p50, p95, p99 = (merged.quantile(ratio) for ratio in (0.5, 0.95, 0.99))
    if p50 is None or p95 is None or p99 is None:
        return None
    return LatencySummary(
        count=merged.count,
        sum=merged.sum_ns * SECONDS_PER_NS,
        min=(merged.min_ns or 0) * SECONDS_PER_NS,
        p50=p50 * SECONDS_PER_NS,
        p95=p95 * SECONDS_PER_NS,
        p99=p99 * SECONDS_PER_NS,
        max=(merged.max_ns or 0) * SECONDS_PER_NS,
    )


def read_labelled(
    connection: Connection, run_key: int, family: str, window: Window
) -> LabelledSeries:
    """Return one family's values per label of a window."""
    if family not in LABELLED_INDEX:
        raise UnknownMetricError(family, tuple(LABELLED_INDEX))
    form = LABELLED[LABELLED_INDEX[family]]
    tiers = [tier for tier in TIERS if tier >= form.finest_tier]
    stretch = _clip(connection, run_key, window).tier(tiers)
    bind = {**_bind(run_key, stretch), "family": family}
    # The grid is that of the rollups: an interval without a row here is one in which a counter
    # did not move, but only where the ledger was looking at all.
    grid = rollup_rows(connection, run_key, stretch, ())[1].at_ns
    query = (
        f"SELECT at_ns, label, value FROM labelled WHERE family=:family AND {WINDOW} ORDER BY at_ns"
    )
    at_ns, labels, numbers = _columns(connection, query, bind, 3)
    times = _ints(at_ns)
    grid = np.union1d(grid, times)
    names = [str(label) for label in labels]
    values: dict[str, Float64Array] = {name: np.zeros(len(grid)) for name in sorted(set(names))}
    places = np.searchsorted(grid, times).tolist()
    for place, name, number in zip(places, names, _floats(numbers).tolist(), strict=True):
        values[name][place] = number
    return LabelledSeries(grid, values, stretch.tier_seconds)


def _clip(connection: Connection, run_key: int, window: Window) -> Window:
    query = text("SELECT started_at_ns, last_event_at_ns FROM runs WHERE run_key=:key")
    row = connection.execute(query, {"key": run_key}).first()
    if row is None:
        return window.within(window.start_ns, window.start_ns)
    last = row.last_event_at_ns
    return window.within(row.started_at_ns, window.end_ns if last is None else last + 1)


def _check_latency(metric: str) -> None:
    if metric not in LATENCY_INDEX:
        raise UnknownMetricError(metric, LATENCIES)


def _bind(run_key: int, stretch: Stretch) -> dict[str, object]:
    return {
        "key": run_key,
        "tier": stretch.tier_seconds,
        "start": stretch.start_ns,
        "end": stretch.end_ns,
    }


def _columns(
    connection: Connection, query: str, bind: dict[str, object], width: int
) -> list[list[object]]:
    rows = connection.execute(text(query), bind).all()
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[]] * width


def _ints(column: list[object]) -> Int64Array:
    return np.array(column, np.int64)


def _floats(column: list[object]) -> Float64Array:
    return np.array(column, np.float64)  # None becomes NaN
