"""Dropping whole partitions on Postgres: the room goes back to the file system at once.

Dropping one needs its table alone for a moment. Whoever is asked to wait for that (because somebody
reads the table for long) waits a fifth of a second at most; then the partition stays until the next
time, and its rows are deleted like others.
"""

from typing import Final

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import OperationalError

from agent.rollups.repeats import MOST_SECONDS
from agent.store.partitions import (
    DAY_NS,
    NS,
    TIER_TABLES,
    TIER_WIDTH_NS,
    Partition,
    partitions_in,
    tier_parent,
)
from agent.store.pins import NO_PINS, Pins

LOCK_MILLISECONDS: Final = 200
FEWEST_PARTITIONS: Final = 4
REACH_NS: Final = MOST_SECONDS * NS  # a row may stand for so many later intervals too
PARENTS: Final = (
    "chunks",
    "snapshots",
    *(tier_parent(table, tier) for table in TIER_TABLES for tier in TIER_WIDTH_NS),
)


def whole_cut(engine: Engine, tier_seconds: int | None, oldest_ns: int, stop_ns: int) -> int | None:
    """Return up to when the oldest partition of a tier reaches, where it is to go as a whole.

    None where one partition is a quarter of what there is or more: that would take too much.
    """
    if engine.dialect.name != "postgresql" or tier_seconds is None:
        return None
    width_ns = TIER_WIDTH_NS[tier_seconds]
    if stop_ns - oldest_ns < FEWEST_PARTITIONS * width_ns:
        return None
    return oldest_ns // width_ns * width_ns + width_ns + REACH_NS


def drop_intervals(engine: Engine, tier_seconds: int, before_ns: int, pins: Pins = NO_PINS) -> int:
    """Drop the partitions of a tier of which nothing reaches a time; return their intervals.

    One that holds something pinned stays: its rows are deleted one by one.
    """
    if engine.dialect.name != "postgresql":
        return 0
    number = 0
    for table in TIER_TABLES:
        for partition in partitions_of_table(engine, tier_parent(table, tier_seconds)):
            if partition.end_ns > before_ns - REACH_NS:
                break
            if pins.touch(partition.start_ns, partition.end_ns + REACH_NS):
                continue
            rows = _drop(engine, partition, only_empty=False)
            number += max(rows, 0) if table == "rollups" else 0
    return number


def drop_empty(engine: Engine) -> int:
    """Drop the partitions of bygone days that hold nothing any more; return how many."""
    with engine.connect() as connection:
        newest = connection.execute(text("SELECT MAX(last_event_at_ns) FROM runs")).scalar()
    if engine.dialect.name != "postgresql" or newest is None:
        return 0
    number = 0
    for parent in PARENTS:
        for partition in partitions_of_table(engine, parent):
            if partition.end_ns > newest - DAY_NS:
                break
            if _is_empty(engine, partition):
                number += _drop(engine, partition, only_empty=True) >= 0
    return number


def partitions_of_table(engine: Engine, parent: str) -> list[Partition]:
    """Return the partitions of a table, the oldest first."""
    with engine.connect() as connection:
        return list(partitions_in(connection, parent))


def _is_empty(engine: Engine, partition: Partition) -> bool:
    with engine.connect() as connection:
        return not _has_rows(connection, partition)


def _has_rows(connection: Connection, partition: Partition) -> bool:
    query = text(f"SELECT EXISTS (SELECT FROM {partition.name})")
    return bool(connection.execute(query).scalar())


def lock_writers_out(connection: Connection, partition: Partition) -> None:
    """Let nobody add to a partition until the transaction ends; readers still read."""
    connection.execute(text(f"SET LOCAL lock_timeout = {LOCK_MILLISECONDS}"))
    connection.execute(text(f"LOCK TABLE ONLY {partition.name} IN SHARE MODE"))


def detach(connection: Connection, partition: Partition) -> None:
    """Make a partition that is locked against writers a table of its own, once nobody reads it."""
    connection.execute(text(f"ALTER TABLE {partition.parent} DETACH PARTITION {partition.name}"))


def _drop(engine: Engine, partition: Partition, *, only_empty: bool) -> int:
    """Drop a partition; return its rows, -1 where it stays."""
    name = partition.name
    try:
        with engine.begin() as connection:
            lock_writers_out(connection, partition)
            rows = connection.execute(text(f"SELECT COUNT(*) FROM {name}")).scalar_one()
            if only_empty and rows:
                return -1
            detach(connection, partition)
            connection.execute(text(f"DROP TABLE {name}"))
    except OperationalError:  # not had in time, or a deadlock that the server ended
        return -1
    return int(rows)
