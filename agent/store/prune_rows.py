"""Delete rows that ended before a time, but for those that are pinned: sequences and rollups."""

from typing import Final

from sqlalchemy import Connection, Engine, text

from agent.rollups.scalars import LABELLED_INDEX, LATENCIES
from agent.store.pins import Pins
from agent.store.retention import TIER_OF, Held

BITE_ROWS: Final = 2_000
NS: Final = 1_000_000_000
ARRIVED: Final = "COALESCE(arrived_at_ns, 0)"  # before a gap, where nobody saw it
TIER_END: Final = "at_ns + repeats * :tier_ns"  # a row stands for later intervals too


def delete_requests(engine: Engine, key: int, cut: int, pins: Pins) -> int:
    """Delete a run's sequences; return how many."""
    kept = pins.outside(ARRIVED, "COALESCE(ended_at_ns, :cut)", run_key=key)
    query = text(
        "SELECT owner FROM requests WHERE run_key=:key AND (ended_at_ns<:cut OR"
        " (state='unknown' AND ended_at_ns IS NULL AND arrived_at_ns<:cut))"
        f" AND {kept.sql} LIMIT :most"
    )
    number = 0
    while True:
        with engine.begin() as connection:
            asked = {"key": key, "cut": cut, "most": BITE_ROWS, **kept.bind}
            owners = connection.execute(query, asked).scalars()
            bind = [{"key": key, "owner": owner} for owner in owners]
            if not bind:
                return number
            statement = "DELETE FROM requests WHERE run_key=:key AND owner=:owner"
            connection.execute(text(statement), bind)
            connection.execute(
                text("UPDATE runs SET requests_pruned=requests_pruned+:n WHERE run_key=:key"),
                {"key": key, "n": len(bind)},
            )
        number += len(bind)


def delete_intervals(engine: Engine, key: int, tier: int, cut: int, pins: Pins) -> int:
    """Delete a run's intervals of a tier; return how many rows of scalars."""
    bind = {"key": key, "tier": tier, "cut": cut, "tier_ns": tier * NS}
    where = "run_key=:key AND tier_seconds=:tier AND at_ns<:cut"
    rollup = pins.outside("at_ns", f"{TIER_END} + :tier_ns - 1", run_key=key)
    interval = pins.outside("at_ns", "at_ns + :tier_ns - 1", run_key=key)
    with engine.begin() as connection:
        gone = connection.execute(
            text(f"DELETE FROM rollups WHERE {where} AND {TIER_END} < :cut AND {rollup.sql}"),
            {**bind, **rollup.bind},
        ).rowcount
        for table, column, names in (
            ("latencies", "metric", LATENCIES),
            ("labelled", "family", LABELLED_INDEX),
        ):
            for name in names:
                delete = f"DELETE FROM {table} WHERE {column}=:name AND {where} AND {interval.sql}"
                named = {name: value for name, value in bind.items() if f":{name}" in delete}
                connection.execute(text(delete), {**named, **interval.bind, "name": name})
    return int(gone)


def oldest_row_ns(connection: Connection, kind: Held, pins: Pins) -> int | None:
    """Return when the oldest data of a kind of rows is from that is not pinned."""
    if kind is Held.REQUESTS:
        table, column, more = "requests", "ended_at_ns", "ended_at_ns IS NOT NULL"
        start, end = ARRIVED, "ended_at_ns"
    else:
        tier = TIER_OF[kind]
        table, column, more = "rollups", "at_ns", f"tier_seconds={tier}"
        start, end = "at_ns", f"at_ns + (repeats + 1) * {tier * NS} - 1"
    found: list[int] = []
    for key in connection.execute(text("SELECT run_key FROM runs")).scalars().all():
        kept = pins.outside(start, end, run_key=key)
        query = text(
            f"SELECT {column} FROM {table} WHERE run_key=:key AND {more} AND {kept.sql}"
            f" ORDER BY {column} LIMIT 1"
        )
        oldest = connection.execute(query, {"key": key, **kept.bind}).scalar()
        found += [] if oldest is None else [int(oldest)]
    return min(found, default=None)
