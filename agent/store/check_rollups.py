"""Recount rollups: blocks add up in every row, and a coarse row is the sum of the fine ones."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

import numpy as np
from sqlalchemy import Connection, RowMapping, text

from agent.reads.models import Float64Array, Int64Array, RunState
from agent.reads.series import read_stretch
from agent.reads.tiers import NS, Stretch
from agent.rollups.scalars import TIERS
from agent.store.check_values import Finding, differ

SUMMED: Final = (
    *("events_stored", "steps", "allocated", "shared", "freed", "arrived", "finished", "rejected"),
    *("wait_pool_ns", "wait_scheduler_ns", "wait_quota_ns", "wait_transfer_ns"),
)
DAY_NS: Final = 86_400 * NS


def check_rollups(connection: Connection, run: RowMapping) -> Iterator[Finding]:
    """Yield what does not add up in the rollups of a run."""
    key = run["run_key"]
    wrong = connection.execute(
        text(
            "SELECT COUNT(*) FROM rollups WHERE run_key=:key"
            " AND active_blocks + cached_blocks + free_blocks <> total_blocks"
        ),
        {"key": key},
    ).scalar_one()
    what = "rollup rows whose active + cached + free is not the total"
    yield from differ(key, "states_add_up", what, int(wrong), 0)
    for fine, coarse in pairwise(TIERS):
        yield from _check_tier(connection, run, fine, coarse)


def _check_tier(
    connection: Connection, run: RowMapping, fine: int, coarse: int
) -> Iterator[Finding]:
    key = run["run_key"]
    ends = "SELECT MIN(at_ns), MAX(at_ns) FROM rollups WHERE run_key=:key AND tier_seconds=:tier"
    low, _ = connection.execute(text(ends), {"key": key, "tier": fine}).one()
    _, high = connection.execute(text(ends), {"key": key, "tier": coarse}).one()
    if low is None or high is None:
        return
    # The first interval may have lost its beginning to retention; the newest is still open.
    step = coarse * NS
    begin = low if low == run["started_at_ns"] // (fine * NS) * fine * NS else low + step
    start = begin // step * step
    stop = high if run["state"] == RunState.LIVE else high + step
    while start < stop:
        end = min(start + DAY_NS, stop)
        yield from _check_day(connection, key, Stretch(fine, start, end), coarse)
        start = end


def _check_day(connection: Connection, key: int, fine: Stretch, coarse: int) -> Iterator[Finding]:
    above = Stretch(coarse, fine.start_ns, fine.end_ns)
    sums = read_stretch(connection, key, fine, SUMMED)
    wholes = read_stretch(connection, key, above, SUMMED)
    for name in SUMMED:
        added = _by_interval(sums.t_ns, sums.values[name], wholes.t_ns, coarse)
        wrong = np.flatnonzero(added != np.nan_to_num(wholes.values[name]))
        for place in wrong[:3].tolist():
            yield Finding(
                key,
                "tiers_add_up",
                f"{name} of {coarse} s at {wholes.t_ns[place]}: {wholes.values[name][place]:.0f},"
                f" in its intervals of {fine.tier_seconds} s: {added[place]:.0f}",
            )


def _by_interval(
    t_ns: Int64Array, values: Float64Array, wholes: Int64Array, coarse: int
) -> Float64Array:
    """Sum fine values by the coarse intervals that begin at `wholes`."""
    groups = t_ns // (coarse * NS) * coarse * NS
    place = np.searchsorted(wholes, groups)
    if not len(wholes):
        return np.zeros(0)
    known = (place < len(wholes)) & (wholes[np.minimum(place, len(wholes) - 1)] == groups)
    weights = np.nan_to_num(values[known])
    added = np.bincount(place[known], weights=weights, minlength=len(wholes))
    return added.astype(np.float64)
