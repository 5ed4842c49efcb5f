"""Partitions by time on Postgres: made ahead of the rows that need them, dropped as a whole.

Chunks and snapshots are cut by day; rollups, latencies and labelled counters by tier, each tier by
time. There is no default partition: attaching one more would have to lock out everybody who reads
the default. A partition is made on its own and then attached, which neither readers nor writers of
the table wait for. Where a row has none all the same (retention dropped it while a stream far
behind wrote into that time), the commit is rolled back, the partition made, the commit done again.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from sqlalchemy import Connection, text
from sqlalchemy.exc import IntegrityError

from agent.chunks.merge import MergePlan
from agent.ledger.delta import LedgerDelta
from agent.rollups.repeats import RepeatPlan

NS: Final = 1_000_000_000
DAY_NS: Final = 86_400 * NS
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
TIME_COLUMNS: Final = {
    "chunks": "start_at_ns",
    "snapshots": "at_ns",
    "rollups": "at_ns",
    "latencies": "at_ns",
    "labelled": "at_ns",
}
TIER_TABLES: Final = ("rollups", "latencies", "labelled")
TIER_WIDTH_NS: Final = {1: DAY_NS, 10: 7 * DAY_NS, 60: 28 * DAY_NS, 3600: 364 * DAY_NS}
MAKE_LOCK: Final = 0x6B76_7079  # advisory lock: one makes partitions at a time
NO_PARTITION: Final = "23514"  # SQLSTATE check_violation; the store's tables have no other check


class Partition(NamedTuple):
    """One partition: `[start_ns, end_ns)` of a table, or of a table's tier."""

    parent: str
    start_ns: int
    end_ns: int

    @property
    def name(self) -> str:
        """The name of its table."""
        day = EPOCH + timedelta(seconds=self.start_ns // NS)
        return f"{self.parent}_{day:%Y%m%d}"

    @property
    def next(self) -> "Partition":
        """The one right behind it."""
        return Partition(self.parent, self.end_ns, 2 * self.end_ns - self.start_ns)


def partition_at(parent: str, at_ns: int, width_ns: int) -> Partition:
    """Return the partition that a time falls into."""
    start_ns = at_ns // width_ns * width_ns
    return Partition(parent, start_ns, start_ns + width_ns)


def tier_parent(table: str, tier_seconds: int) -> str:
    """Return the table that holds one tier of a table."""
    return f"{table}_{tier_seconds}s"


def partitions_of(delta: LedgerDelta, merge: MergePlan, plan: RepeatPlan) -> set[Partition]:
    """Return what a commit's rows need. Pure."""
    offset = delta.wall_offset_ns
    chunks = delta.chunks if merge.merged is None else (*delta.chunks, merge.merged)
    found = {partition_at("chunks", chunk.t0_ns + offset, DAY_NS) for chunk in chunks}
    if delta.snapshot is not None:
        found.add(partition_at("snapshots", delta.snapshot.t_ns + offset, DAY_NS))
    intervals = {
        "rollups": {row[:2] for row, _ in plan.rows},
        "latencies": {row[:2] for row in delta.latencies},
        "labelled": {row[:2] for row in delta.labelled},
    }
    for table, its in intervals.items():
        found |= {
            partition_at(tier_parent(table, tier), t_ns + offset, TIER_WIDTH_NS[tier])
            for tier, t_ns in its
        }
    return found


class Partitions:
    """Makes the partitions that commits need. One for each store; for one thread."""

    are_made = True

    def __init__(self, transaction: Callable[[], AbstractContextManager[Connection]]) -> None:
        self._transaction = transaction
        self._known: set[Partition] = set()

    def ensure(self, wanted: set[Partition]) -> None:
        """Make what is missing, each with the one behind it, so that no commit waits at midnight.

        Raises:
            StoreUnwritable: The database refused.
        """
        missing = (wanted | {partition.next for partition in wanted}) - self._known
        if not missing:
            return
        with self._transaction() as connection:
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": MAKE_LOCK})
            for partition in sorted(missing):
                make_partition(connection, partition)
        self._known |= missing

    def is_missing(self, error: IntegrityError) -> bool:
        """Tell whether a commit failed for want of a partition; then forget what was known."""
        if getattr(error.orig, "sqlstate", None) != NO_PARTITION:
            return False
        self._known.clear()
        return True


class OnePiece(Partitions):
    """SQLite's tables are in one piece: they need nothing."""

    are_made = False


def make_partition(connection: Connection, partition: Partition) -> None:
    """Make a partition unless it is there, with a lock that neither reads nor writes wait for."""
    name, parent, start_ns, end_ns = partition.name, *partition
    if connection.execute(text("SELECT to_regclass(:name)"), {"name": name}).scalar() is not None:
        return
    connection.exec_driver_sql(
        f"CREATE TABLE {name} (LIKE {parent} INCLUDING DEFAULTS INCLUDING STORAGE)"
    )
    connection.exec_driver_sql(
        f"ALTER TABLE {parent} ATTACH PARTITION {name} FOR VALUES FROM ({start_ns}) TO ({end_ns})"
    )


def partitions_in(connection: Connection, parent: str) -> Iterator[Partition]:
    """Yield the partitions that a table has, the oldest first."""
    bounds = connection.execute(
        text(
            "SELECT regexp_matches(pg_get_expr(c.relpartbound, c.oid),"
            " 'FROM \\(''(-?\\d+)''\\) TO \\(''(-?\\d+)''\\)')"
            " FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid"
            " WHERE i.inhparent = to_regclass(:parent)"
        ),
        {"parent": parent},
    ).scalars()
    yield from sorted(Partition(parent, int(low), int(high)) for low, high in bounds)
