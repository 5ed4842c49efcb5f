"""A window of one engine as a side of a comparison: whole intervals of a tier that fits it."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

import numpy as np
from sqlalchemy import Connection, Row, text

from agent.baselines.codec import MAX_INTERVALS
from agent.baselines.errors import BaselineRefused
from agent.baselines.gather import Grid, HistogramRow, RunRows, gather
from agent.baselines.metrics import COUNTERS, LATENCIES
from agent.baselines.side import Completeness, Side
from agent.reads.first_tokens import read_first_tokens
from agent.reads.models import Fingerprint, Int64Array
from agent.reads.series import read_stretch
from agent.reads.tiers import NS, Stretch
from agent.rollups.scalars import TIERS

WINDOW_TIERS: Final = TIERS[
    1:
]  # seconds are too many, and too noisy, to say more than tens of them
SETTLE_NS: Final = 2 * NS  # a row of ten seconds is stored a second after they are over
LONGEST_SECONDS: Final = 7 * 86_400
LOST: Final = "events_lost"


def read_newest_ns(connection: Connection, engine: str) -> int:
    """Return up to when an engine's rollups are complete.

    Raises:
        BaselineRefused: The store knows no event of it.
    """
    query = text("SELECT MAX(last_event_at_ns) FROM runs WHERE engine=:engine")
    newest = connection.execute(query, {"engine": engine}).scalar()
    if newest is None:
        raise BaselineRefused(f"engine {engine!r} has recorded nothing yet: wait, then try again")
    return int(newest) - SETTLE_NS


def check_is_past(connection: Connection, engine: str, end_ns: int) -> None:
    """Refuse a moment of which an engine's rollups say nothing yet."""
    newest_ns = read_newest_ns(connection, engine)
    if end_ns > newest_ns:
        known = datetime.fromtimestamp(newest_ns / NS, UTC)
        raise BaselineRefused(
            f"{engine!r} is recorded up to {known:%Y-%m-%d %H:%M:%S} UTC: choose an end before that"
        )


def read_newest(
    connection: Connection, engine: str | None, seconds: float, back_seconds: float
) -> Side:
    """Return the newest window of an engine, or the one so many seconds before it.

    Raises:
        BaselineRefused: There is none; the text says what there is.
    """
    name = choose_engine(connection, engine)
    end_ns = read_newest_ns(connection, name) - int(back_seconds * 1e9)
    return read_side(connection, name, window_grid(end_ns, seconds), "the window")


def read_until(connection: Connection, engine: str | None, seconds: float, end_ns: int) -> Side:
    """Return an engine's window that ends at a moment of the past.

    Raises:
        BaselineRefused: There is none; the text says what there is.
    """
    name = choose_engine(connection, engine)
    check_is_past(connection, name, end_ns)
    return read_side(connection, name, window_grid(end_ns, seconds), "the window")


def choose_engine(connection: Connection, engine: str | None) -> str:
    """Return the engine that is meant.

    Raises:
        BaselineRefused: There is no such engine, none at all, or more than one to choose from.
    """
    rows = connection.execute(text("SELECT DISTINCT engine FROM runs ORDER BY engine"))
    names = [str(row.engine) for row in rows]
    if engine is None and len(names) == 1:
        return names[0]
    if engine in names and engine is not None:
        return engine
    known = ", ".join(names[:20]) or "none yet"
    if engine is None:
        raise BaselineRefused(f"which engine? say --engine NAME; the store has: {known}")
    raise BaselineRefused(f"the store has no engine of that name; it has: {known}")


def window_grid(end_ns: int, seconds: float) -> Grid:
    """Return so many seconds of whole intervals, the last of which ends at `end_ns` or before.

    Raises:
        BaselineRefused: The window is longer than a week, or shorter than one interval.
    """
    if seconds > LONGEST_SECONDS:
        raise BaselineRefused("a window is at most 7 days (168h) long")
    for tier in WINDOW_TIERS:
        num = int(seconds // tier)
        if num <= MAX_INTERVALS:
            break
    if num < 1:
        raise BaselineRefused(f"a window is at least {WINDOW_TIERS[0]} s long")
    step = tier * NS
    return Grid(tier, end_ns // step * step - num * step, num)


def read_side(connection: Connection, engine: str, grid: Grid, label: str) -> Side:
    """Read what is stored of an engine's window; what is missing is counted, not guessed."""
    runs = _runs(connection, engine, grid)
    parts = [_run_rows(connection, run.run_key, grid) for run in runs]
    gathered = gather(grid, [rows for rows, _ in parts])
    configs = [config for run in runs for config in _configs(connection, run, grid)]
    completeness = Completeness(
        grid.num_intervals,
        gathered.num_not_recorded,
        gathered.num_in_gaps,
        sum(lost for _, lost in parts),
        len(set(configs)),
    )
    fingerprint: Fingerprint = json.loads(configs[-1]) if configs else {}
    return Side(label, engine, gathered.series, completeness, fingerprint)


def _runs(connection: Connection, engine: str, grid: Grid) -> list[Row[tuple[object, ...]]]:
    query = text(
        "SELECT run_key, started_at_ns, fingerprint FROM runs WHERE engine=:engine"
        " AND started_at_ns<:end AND last_event_at_ns>=:start ORDER BY started_at_ns, run_key"
    )
    bind = {"engine": engine, "start": grid.start_ns, "end": grid.end_ns}
    return list(connection.execute(query, bind).all())


def _run_rows(connection: Connection, run_key: int, grid: Grid) -> tuple[RunRows, int]:
    stretch = Stretch(grid.tier_seconds, grid.start_ns, grid.end_ns)
    series = read_stretch(connection, run_key, stretch, (*COUNTERS, LOST))
    lost = np.nan_to_num(series.values[LOST])
    marked = series.t_ns[lost > 0]
    gaps = np.concatenate([_gaps(connection, run_key, grid), np.stack([marked, marked], axis=1)])
    histograms = _histograms(connection, run_key, stretch)
    first_tokens = read_first_tokens(connection, run_key, grid)
    rows = RunRows(series.t_ns, series.values, histograms, gaps, first_tokens)
    return rows, int(lost.sum())


def _gaps(connection: Connection, run_key: int, grid: Grid) -> Int64Array:
    query = text(
        "SELECT start_at_ns, end_at_ns FROM gaps WHERE run_key=:key AND start_at_ns<:end"
        " AND end_at_ns>=:start"
    )
    bind = {"key": run_key, "start": grid.start_ns, "end": grid.end_ns}
    rows = [tuple(row) for row in connection.execute(query, bind)]
    return np.array(rows, np.int64).reshape(-1, 2)


def _histograms(connection: Connection, run_key: int, stretch: Stretch) -> Iterator[HistogramRow]:
    query = text(
        "SELECT at_ns, histogram FROM latencies WHERE run_key=:key AND metric=:metric"
        " AND tier_seconds=:tier AND at_ns>=:start AND at_ns<:end ORDER BY at_ns"
    )
    for metric in LATENCIES:
        bind = {
            "key": run_key,
            "metric": metric,
            "tier": stretch.tier_seconds,
            "start": stretch.start_ns,
            "end": stretch.end_ns,
        }
        for at_ns, blob in connection.execute(query, bind):
            yield HistogramRow(at_ns, metric, bytes(blob))


def _configs(connection: Connection, run: Row[tuple[object, ...]], grid: Grid) -> list[str]:
    """Return the configurations in force in the window, as canonical JSON, in their order."""
    query = text(
        "SELECT at_ns, fingerprint FROM configs WHERE run_key=:key AND at_ns<:end ORDER BY at_ns"
    )
    rows = connection.execute(query, {"key": run.run_key, "end": grid.end_ns}).all()
    if not rows:
        return [_canonical(run.fingerprint)]
    before = [row for row in rows if row.at_ns <= grid.start_ns]
    inside = [row for row in rows if row.at_ns > grid.start_ns]
    return [_canonical(row.fingerprint) for row in (*before[-1:], *inside)]


def newest_config(connection: Connection, run: Row[tuple[object, ...]], end_ns: int) -> Fingerprint:
    """Return the configuration of a run that was in force when a window ended."""
    query = text(
        "SELECT fingerprint FROM configs WHERE run_key=:key AND at_ns<:end"
        " ORDER BY at_ns DESC LIMIT 1"
    )
    found = connection.execute(query, {"key": run.run_key, "end": end_ns}).scalar()
    stated: Fingerprint = json.loads(run.fingerprint if found is None else found)
    return stated


def _canonical(stored: str) -> str:
    return json.dumps(json.loads(stored), sort_keys=True)
