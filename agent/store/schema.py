"""The tables of the store, in SQLAlchemy Core: one schema for SQLite and Postgres.

`migrations/` builds them; a test holds the two equal. Columns ending in `_at_ns` are wall-clock
nanoseconds UTC. NULL means not measured. Every table but the fleet's is keyed by `run_key`, and a
row that may change again (an open rollup interval, a live request) is replaced by its key. On
Postgres some are cut by time, without a foreign key and with that time within the primary key; see
`agent.store.partitions`.
"""

from typing import Final

from sqlalchemy import (
    BigInteger,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from agent.rollups.scalars import COLUMNS
from agent.store.request_columns import REQUEST_NUMBERS, REQUEST_TIMES

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)

# SQLite makes only an INTEGER primary key count up by itself.
ROW_KEY: Final = BigInteger().with_variant(Integer(), "sqlite")


def _big(name: str, *, null: bool = False, default: str | None = None) -> Column[int]:
    return Column(name, BigInteger, nullable=null, server_default=default)


def _text(name: str, *, null: bool = False) -> Column[str]:
    return Column(name, Text, nullable=null)


def _blob(name: str, *, null: bool = False) -> Column[bytes]:
    return Column(name, LargeBinary, nullable=null)


def _run() -> Column[int]:
    return Column("run_key", BigInteger, ForeignKey("runs.run_key"), nullable=False)


runs: Final = Table(
    "runs",
    metadata,
    Column("run_key", ROW_KEY, primary_key=True, autoincrement=True),
    _text("engine"),
    _text("run_id"),
    _text("state"),
    _text("fingerprint"),
    _big("wall_offset_ns"),  # engine time + this = wall time, one number for the whole run
    _big("total_blocks"),
    _big("host_blocks"),
    _big("block_size"),
    _big("started_at_ns"),
    _big("ended_at_ns", null=True),
    _big("last_event_at_ns", null=True),
    _big("last_commit_at_ns", null=True),
    _big("num_gaps", default="0"),
    _big("num_chunks", default="0"),
    _big("chunk_bytes", default="0"),
    _big("events_stored", default="0"),
    _big("events_lost", default="0"),
    _big("audits_passed", default="0"),
    _big("audits_failed", default="0"),
    _big("events_pruned", default="0"),  # of those stored, events whose chunks retention took
    _big("requests_pruned", default="0"),
    UniqueConstraint("engine", "run_id"),
)

positions: Final = Table(
    "positions",
    metadata,
    _run(),
    _big("segment"),
    _big("record"),
    _big("seq"),
    _blob("counts"),
    _blob("lost"),
    _big("behind_records", default="0"),
    _big("unknown_records", default="0"),
    _big("stamp", default="0"),  # drawn by each commit: it tells whether a cut one was stored
    PrimaryKeyConstraint("run_key"),
)

leases: Final = Table(
    "leases",
    metadata,
    _text("engine"),
    _text("run_id"),
    _text("holder"),
    _text("process"),
    _big("beat"),
    PrimaryKeyConstraint("engine", "run_id"),
)

configs: Final = Table(
    "configs",
    metadata,
    _run(),
    _big("at_ns"),
    _text("fingerprint"),
    PrimaryKeyConstraint("run_key", "at_ns"),
)

strings: Final = Table(
    "strings",
    metadata,
    _run(),
    _big("string_id"),
    _text("value"),
    PrimaryKeyConstraint("run_key", "string_id"),
)

kind_totals: Final = Table(
    "kind_totals",
    metadata,
    _run(),
    _big("kind"),
    _big("stored"),
    _big("lost"),
    PrimaryKeyConstraint("run_key", "kind"),
)

chunks: Final = Table(
    "chunks",
    metadata,
    _run(),
    _big("seq0"),
    _big("num_records"),
    _big("num_events"),
    _big("hash_bytes"),
    _big("start_at_ns"),
    _big("end_at_ns"),
    _big("crc"),
    _blob("data"),
    PrimaryKeyConstraint("run_key", "seq0"),
    Index(None, "run_key", "start_at_ns"),
)

snapshots: Final = Table(
    "snapshots",
    metadata,
    _run(),
    _big("seq"),
    _big("at_ns"),
    _blob("map_data"),
    _blob("state_data", null=True),  # kept for the newest one only
    _big("detail_gone", default="0"),  # 1: the chunks up to the next snapshot were pruned
    PrimaryKeyConstraint("run_key", "seq"),
    Index(None, "run_key", "at_ns"),
    Index(None, "detail_gone", "at_ns", "run_key", "seq"),
)


rollups: Final = Table(
    "rollups",
    metadata,
    _run(),
    _big("tier_seconds"),
    _big("at_ns"),
    *(_big(name, null=True) for name in COLUMNS),
    _big("repeats", default="0"),  # so many later intervals, right behind, were just the same
    PrimaryKeyConstraint("run_key", "tier_seconds", "at_ns"),
    sqlite_with_rowid=False,
)

latencies: Final = Table(
    "latencies",
    metadata,
    _run(),
    _text("metric"),
    _big("tier_seconds"),
    _big("at_ns"),
    _big("count"),
    _big("sum_ns"),
    _big("min_ns"),
    _big("max_ns"),
    _big("p50_ns"),
    _big("p95_ns"),
    _big("p99_ns"),
    _blob("histogram"),
    PrimaryKeyConstraint("run_key", "metric", "tier_seconds", "at_ns"),
    sqlite_with_rowid=False,
)

labelled: Final = Table(
    "labelled",
    metadata,
    _run(),
    _text("family"),
    _big("tier_seconds"),
    _big("at_ns"),
    _text("label"),
    _big("value"),
    PrimaryKeyConstraint("run_key", "family", "tier_seconds", "at_ns", "label"),
    sqlite_with_rowid=False,
)

requests: Final = Table(
    "requests",
    metadata,
    _run(),
    _big("owner"),
    _big("parent"),
    _text("tenant", null=True),
    _text("state"),
    *(_big(name, null=True) for name in REQUEST_TIMES),
    _text("end_reason", null=True),
    _text("reject_reason", null=True),
    *(_big(name, null=True) for name in REQUEST_NUMBERS),
    Column("block_seconds", Double, nullable=True),
    _text("wait_ns", null=True),  # JSON: cause to nanoseconds
    _text("preempted_by"),  # JSON: owners
    _text("alloc_failures"),  # JSON: cause to count
    _big("spans_gap"),  # 1: a gap fell into its life
    _text("wait_cause", null=True),  # why it waits now
    PrimaryKeyConstraint("run_key", "owner"),
    Index(None, "run_key", "arrived_at_ns"),
    Index(None, "run_key", "ended_at_ns"),
)

gaps: Final = Table(
    "gaps",
    metadata,
    _run(),
    _big("seq0"),
    _big("seq1"),
    _big("start_at_ns"),
    _big("end_at_ns"),
    _text("why"),
    _text("lost"),  # JSON: kind to events
    PrimaryKeyConstraint("run_key", "seq0", "seq1"),
)

leaks: Final = Table(
    "leaks",
    metadata,
    _run(),
    _big("block"),
    _big("owner"),
    _big("since_at_ns"),
    _big("ended_at_ns", null=True),
    PrimaryKeyConstraint("run_key", "block", "owner", "since_at_ns"),
)

broken_laws: Final = Table(
    "broken_laws",
    metadata,
    _run(),
    _text("law"),  # an audit too
    _big("opened_at_ns"),
    _big("closed_at_ns", null=True),  # NULL: it does not hold now, or did not when the run ended
    _text("expected"),
    _text("found"),
    _text("blocks"),  # JSON: the first few
    _big("num_blocks"),
    _text("owners"),  # JSON: the first few; 4294967295 is an unknown one
    _big("num_owners"),
    PrimaryKeyConstraint("run_key", "law", "opened_at_ns"),
)

gpu_samples: Final = Table(
    "gpu_samples",
    metadata,
    _text("host"),  # the machine whose agent looked
    _text("gpu"),  # its index, "0" or under MIG "0/1"; "" is the driver that could not be asked
    _big("at_ns"),  # when the minute began
    _text("name", null=True),
    _big("num_looks"),
    _big("memory_used_bytes", null=True),  # at its most
    _big("memory_total_bytes", null=True),
    Column("utilization_ratio", Double, nullable=True),  # mean, as the next
    Column("power_watts", Double, nullable=True),
    _text("missing"),  # JSON: figure, or nvml, to the reason why it is NULL
    PrimaryKeyConstraint("host", "gpu", "at_ns"),
    Index(None, "at_ns"),
    sqlite_with_rowid=False,
)

IS_OPEN: Final = text("closed_at_ns IS NULL")
incidents: Final = Table(
    "incidents",
    metadata,
    Column("incident_key", ROW_KEY, primary_key=True, autoincrement=True),
    _text("engine"),
    _run(),
    _text("verdict"),
    _text("opened_as"),  # its verdict at first: another cause may be found later
    _big("opened_at_ns"),
    _big("seen_at_ns"),  # when it held last, as of the last update
    _big("updated_at_ns"),
    _big("closed_at_ns", null=True),
    _text("close_reason", null=True),
    _text("confidence"),
    _text("action"),
    _text("summary"),
    _big("peak_at_ns"),  # when it cost most
    Column("peak_impact", Double, nullable=False),  # sequences held up then
    _text("opening"),  # JSON: the diagnosis that opened it
    _text("evidence"),  # JSON: the newest diagnosis
    _big("acknowledged_at_ns", null=True),
    _text("acknowledged_by", null=True),
    _text("acknowledged_note", null=True),
    _big("told_opened_at_ns", null=True),  # when the webhook's receiver had it
    _big("told_closed_at_ns", null=True),
    UniqueConstraint("run_key", "opened_as", "opened_at_ns"),
    Index(None, "engine", "opened_at_ns"),
    Index(None, "run_key", "verdict", unique=True, sqlite_where=IS_OPEN, postgresql_where=IS_OPEN),
)

baselines: Final = Table(
    "baselines",
    metadata,
    Column("baseline_key", ROW_KEY, primary_key=True, autoincrement=True),
    _text("name"),
    _text("engine"),
    _text("fingerprint"),
    _big("start_at_ns"),
    _big("end_at_ns"),
    _big("saved_at_ns"),
    _big("tier_seconds"),
    _text("traffic"),  # JSON: what the engine was asked to do
    _text("completeness"),  # JSON: how much of the window was recorded
    _text("figures"),  # JSON: the judged metrics as they were
    _blob("series"),  # decode_series() reads it
    UniqueConstraint("name"),
)
