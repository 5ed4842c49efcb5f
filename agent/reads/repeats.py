"""Read rollup rows with the intervals that they stand for; see `agent.rollups.repeats`."""

from typing import NamedTuple

import numpy as np
from sqlalchemy import Connection, text

from agent.reads.models import Int64Array
from agent.reads.tiers import NS, Stretch
from agent.rollups.repeats import MOST_SECONDS, REPEATING_TIERS


class Intervals(NamedTuple):
    """The intervals of a stretch that have values, and the stored row of each."""

    at_ns: Int64Array
    row_idx: Int64Array


def first_row_at(connection: Connection, run_key: int, stretch: Stretch) -> int:
    """Return from where rows are to be read: one before the stretch may reach into it."""
    if stretch.tier_seconds not in REPEATING_TIERS:
        return stretch.start_ns
    row = connection.execute(
        text(
            "SELECT at_ns, repeats FROM rollups WHERE run_key=:key AND tier_seconds=:tier"
            " AND at_ns>=:earliest AND at_ns<:start ORDER BY at_ns DESC LIMIT 1"
        ),
        {
            "key": run_key,
            "tier": stretch.tier_seconds,
            "earliest": stretch.start_ns - MOST_SECONDS * NS,  # no row reaches further
            "start": stretch.start_ns,
        },
    ).first()
    if row is None or row.at_ns + row.repeats * stretch.tier_seconds * NS < stretch.start_ns:
        return stretch.start_ns
    return int(row.at_ns)


def expand(at_ns: Int64Array, repeats: Int64Array, stretch: Stretch) -> Intervals:
    """Return every interval of a stretch that rows stand for; none is given twice."""
    step = stretch.tier_seconds * NS
    if not len(at_ns) or not repeats.any():
        return Intervals(at_ns, np.arange(len(at_ns)))
    # Whatever a row claims, it ends where the next one begins, and at the end of the stretch.
    room = -(-(np.append(at_ns[1:], stretch.end_ns) - at_ns) // step)
    lengths = np.clip(np.minimum(np.maximum(repeats, 0) + 1, room), 1, None)
    row_idx = np.repeat(np.arange(len(at_ns)), lengths)
    place = np.arange(len(row_idx)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    times = at_ns[row_idx] + place * step
    inside = (times >= stretch.start_ns) & (times < stretch.end_ns)
    return Intervals(times[inside], row_idx[inside])
