"""Range partitions by time on Postgres, for what retention takes; SQLite stays as it is."""

from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

DAY_NS = 86_400 * 10**9
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Intervals of one partition, by the seconds of a tier.
TIER_DAYS = {1: 1, 10: 7, 60: 28, 3600: 364}


class Split(NamedTuple):
    """A table and how it is cut."""

    table: str
    time: str
    key: tuple[str, ...]  # of the table in one piece
    indexes: tuple[tuple[str, ...], ...] = ()
    by_tier: bool = False

    @property
    def split_key(self) -> tuple[str, ...]:
        """Postgres wants what cuts a table within its primary key."""
        return self.key if self.time in self.key else (*self.key, self.time)


SPLITS = (
    Split("chunks", "start_at_ns", ("run_key", "seq0"), (("run_key", "start_at_ns"),)),
    Split(
        "snapshots",
        "at_ns",
        ("run_key", "seq"),
        (("run_key", "at_ns"), ("detail_gone", "at_ns", "run_key", "seq")),
    ),
    Split("rollups", "at_ns", ("run_key", "tier_seconds", "at_ns"), by_tier=True),
    Split("latencies", "at_ns", ("run_key", "metric", "tier_seconds", "at_ns"), by_tier=True),
    Split(
        "labelled", "at_ns", ("run_key", "family", "tier_seconds", "at_ns", "label"), by_tier=True
    ),
)


def upgrade() -> None:
    """Make each table anew in partitions, and move its rows there."""
    if op.get_bind().dialect.name != "postgresql":
        return
    for split in SPLITS:
        cut = "LIST (tier_seconds)" if split.by_tier else f"RANGE ({split.time})"
        _put_aside(split)
        op.execute(f"CREATE TABLE {split.table} ({_like(split)}) PARTITION BY {cut}")
        _add_keys(split, split.split_key)
        # No foreign key to `runs`: dropping a partition would lock out everybody who reads those.
        if not split.by_tier:
            _make_partitions(split.table, split, DAY_NS, "true")
        for tier, days in TIER_DAYS.items() if split.by_tier else ():
            parent = f"{split.table}_{tier}s"
            op.execute(
                f"CREATE TABLE {parent} PARTITION OF {split.table} FOR VALUES IN ({tier})"
                f" PARTITION BY RANGE ({split.time})"
            )
            _make_partitions(parent, split, days * DAY_NS, f"tier_seconds = {tier}")
        _move(split)


def downgrade() -> None:
    """Put each table together again."""
    if op.get_bind().dialect.name != "postgresql":
        return
    for split in SPLITS:
        _put_aside(split)
        op.execute(f"CREATE TABLE {split.table} ({_like(split)})")
        _move(split)
        _add_keys(split, split.key)
        op.create_foreign_key(
            f"fk_{split.table}_run_key_runs", split.table, "runs", ["run_key"], ["run_key"]
        )


def _like(split: Split) -> str:
    return f"LIKE old_{split.table} INCLUDING DEFAULTS INCLUDING STORAGE"


def _put_aside(split: Split) -> None:
    table = split.table
    op.execute(f"ALTER TABLE {table} RENAME CONSTRAINT pk_{table} TO old_pk_{table}")
    for columns in split.indexes:
        op.drop_index(f"ix_{table}_{'_'.join(columns)}", table)
    op.rename_table(table, f"old_{table}")


def _add_keys(split: Split, key: tuple[str, ...]) -> None:
    op.create_primary_key(f"pk_{split.table}", split.table, list(key))
    for columns in split.indexes:
        op.create_index(f"ix_{split.table}_{'_'.join(columns)}", split.table, list(columns))


def _make_partitions(parent: str, split: Split, width_ns: int, where: str) -> None:
    """Make those that the rows need; floor division, as the agent does it."""
    time = split.time
    starts = op.get_bind().exec_driver_sql(
        f"SELECT DISTINCT {time} - MOD(MOD({time}, {width_ns}) + {width_ns}, {width_ns})"
        f" FROM old_{split.table} WHERE {where}"
    )
    for start_ns in starts.scalars().all():
        day = EPOCH + timedelta(seconds=start_ns // 10**9)
        op.execute(
            f"CREATE TABLE {parent}_{day:%Y%m%d} PARTITION OF {parent}"
            f" FOR VALUES FROM ({start_ns}) TO ({start_ns + width_ns})"
        )


def _move(split: Split) -> None:
    op.execute(f"INSERT INTO {split.table} SELECT * FROM old_{split.table}")
    op.drop_table(f"old_{split.table}")
