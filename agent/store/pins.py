"""What retention must keep around incidents: time of a run, asked for through `held_pins`.

From ten minutes before an incident was first seen to ten after it was seen last, in every run of
its engine: chunks, snapshots, requests and rollups. Beyond a limit the oldest is given up first.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, text

from agent.store.retention import (
    AROUND_NS,
    INTERVAL_BYTES,
    REQUEST_BYTES,
    Pin,
    PinnedSlice,
    merged,
    within_limit,
)

MOST_PINS: Final = 200  # the newest incidents; each is a condition in a statement
NS: Final = 1_000_000_000
MINUTE_NS: Final = 60 * NS
STRETCH: Final = "run_key=:key AND {} BETWEEN :first AND :last"
WITHIN: Final = "run_key=:key AND {} BETWEEN :start AND :end"
WEIGHED: Final = (
    f"SELECT start_at_ns, LENGTH(data) FROM chunks WHERE {STRETCH.format('start_at_ns')}"
    f" UNION ALL SELECT at_ns, LENGTH(map_data) FROM snapshots WHERE {STRETCH.format('at_ns')}"
    f" UNION ALL SELECT MIN(ended_at_ns), COUNT(*) * {REQUEST_BYTES} FROM requests"
    f" WHERE {WITHIN.format('ended_at_ns')} GROUP BY ended_at_ns / {NS}"
    f" UNION ALL SELECT at_ns, {INTERVAL_BYTES} FROM rollups"
    f" WHERE tier_seconds=1 AND {WITHIN.format('at_ns')}"
)


@dataclass(frozen=True, slots=True)
class Pins:
    """Stretches that are kept; the newest first, not overlapping within a run."""

    pins: tuple[Pin, ...] = ()

    def cover(self, run_key: int, start_at_ns: int, end_at_ns: int) -> bool:
        """Return whether any of `[start, end]` of a run is pinned."""
        return any(pin.covers(run_key, start_at_ns, end_at_ns) for pin in self.pins)

    def touch(self, start_at_ns: int, end_at_ns: int) -> bool:
        """Return whether any of `[start, end)` is pinned in any run, as for a partition."""
        return any(
            pin.start_at_ns < end_at_ns and pin.end_at_ns >= start_at_ns for pin in self.pins
        )

    def outside(self, start: str, end: str, *, run_key: int | None = None) -> "Condition":
        """Return the SQL condition on a row from `start` to `end` that no pin holds it.

        Args:
            start: An expression, as `end`; neither is NULL.
            run_key: The run whose rows are meant; None: rows of any run, which the column tells.
        """
        parts: list[str] = []
        bind: dict[str, Any] = {}
        for number, pin in enumerate(self.pins):
            if run_key not in (None, pin.run_key):
                continue
            low, high = f"pin_low_{number}", f"pin_high_{number}"
            bind |= {low: pin.start_at_ns, high: pin.end_at_ns}
            mine = "" if run_key is not None else f"run_key={int(pin.run_key)} AND "
            parts.append(f"NOT ({mine}{start}<=:{high} AND {end}>=:{low})")
        return Condition(" AND ".join(parts) or "1=1", bind)


@dataclass(frozen=True, slots=True)
class Condition:
    """A part of a WHERE, and the values of its names."""

    sql: str
    bind: dict[str, Any]


NO_PINS: Final = Pins()


def held_pins(connection: Connection, limit_bytes: int) -> Pins:
    """Return what incidents pin, the newest first, as far as it fits into a limit."""
    pins = merged(_wanted(connection))
    return Pins(tuple(within_limit(pins, lambda pin: _slices(connection, pin), limit_bytes)))


def _wanted(connection: Connection) -> Sequence[Pin]:
    query = text(
        "SELECT runs.run_key, i.opened_at_ns, COALESCE(i.closed_at_ns, i.seen_at_ns) AS end_at_ns"
        " FROM incidents i JOIN runs ON runs.engine=i.engine"
        " AND runs.started_at_ns<=COALESCE(i.closed_at_ns, i.seen_at_ns)+:around"
        " AND COALESCE(runs.last_event_at_ns, runs.started_at_ns)>=i.opened_at_ns-:around"
        " ORDER BY i.opened_at_ns DESC LIMIT :most"
    )
    rows = connection.execute(query, {"around": AROUND_NS, "most": MOST_PINS})
    return [
        Pin(row.run_key, row.opened_at_ns - AROUND_NS, row.end_at_ns + AROUND_NS) for row in rows
    ]


def _slices(connection: Connection, pin: Pin) -> list[PinnedSlice]:
    """Return what the stretches of a pin take, the newest first.

    A snapshot and the chunks behind it stay or go together, so those count as a whole.
    """
    bind: dict[str, int] = {"key": pin.run_key, "start": pin.start_at_ns, "end": pin.end_at_ns}
    edges = connection.execute(
        text(
            "SELECT (SELECT MAX(at_ns) FROM snapshots WHERE run_key=:key AND at_ns<=:start),"
            " (SELECT MIN(at_ns) FROM snapshots WHERE run_key=:key AND at_ns>:end)"
        ),
        bind,
    ).one()
    bind["first"] = pin.start_at_ns if edges[0] is None else int(edges[0])
    bind["last"] = pin.end_at_ns if edges[1] is None else int(edges[1]) - 1
    query = text(f"SELECT at_ns FROM snapshots WHERE {STRETCH.format('at_ns')} ORDER BY at_ns")
    starts = [int(at_ns) for at_ns in connection.execute(query, bind).scalars()]
    starts = starts or list(range(pin.start_at_ns, pin.end_at_ns, MINUTE_NS))
    sizes = [0] * len(starts)
    for at_ns, num_bytes in connection.execute(text(WEIGHED), bind):
        sizes[max(0, bisect_right(starts, at_ns) - 1)] += int(num_bytes)
    return [PinnedSlice(*part) for part in reversed(list(zip(starts, sizes, strict=True)))]
