"""The tables of the store, in SQLAlchemy Core: one schema for SQLite and Postgres.

`migrations/` builds them; a test holds the two equal. Columns ending in `_at_ns` are wall-clock
nanoseconds UTC. NULL means not measured. Every table but the fleet's is keyed by `run_key`, and a
row that may change again (an open rollup interval, a live request) is replaced by its key. On
Postgres some are cut by time, without a foreign key and with that time within the primary key; see
`agent.store.partitions`.
"""

from typing import Final

from sqlalchemy import (
    Column,
    Double,
    Index,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    UniqueConstraint,
    text,
)

from agent.rollups.scalars import COLUMNS
from agent.store.column_types import ROW_KEY, big, blob, run, string
from agent.store.request_columns import REQUEST_NUMBERS, REQUEST_TIMES

metadata: Final = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)

runs: Final = Table(
    "runs",
    metadata,
    Column("run_key", ROW_KEY, primary_key=True, autoincrement=True),
    string("engine"),
    string("run_id"),
    string("state"),
    string("fingerprint"),
    big("wall_offset_ns"),  # engine time + this = wall time, one number for the whole run
    big("total_blocks"),
    big("host_blocks"),
    big("block_size"),
    big("started_at_ns"),
    big("ended_at_ns", null=True),
    big("last_event_at_ns", null=True),
    big("last_commit_at_ns", null=True),
    big("num_gaps", default="0"),
    big("num_chunks", default="0"),
    big("chunk_bytes", default="0"),
    big("events_stored", default="0"),
    big("events_lost", default="0"),
    big("audits_passed", default="0"),
    big("audits_failed", default="0"),
    big("events_pruned", default="0"),  # of those stored, events whose chunks retention took
    big("requests_pruned", default="0"),
    UniqueConstraint("engine", "run_id"),
)

positions: Final = Table(
    "positions",
    metadata,
    run(),
    big("segment"),
    big("record"),
    big("seq"),
    blob("counts"),
    blob("lost"),
    big("behind_records", default="0"),
    big("unknown_records", default="0"),
    big("stamp", default="0"),  # drawn by each commit: it tells whether a cut one was stored
    PrimaryKeyConstraint("run_key"),
)

leases: Final = Table(
    "leases",
    metadata,
    string("engine"),
    string("run_id"),
    string("holder"),
    string("process"),
    big("beat"),
    big("renewed_at_ns", null=True),  # by the agent's wall clock; tells readers that it is alive
    PrimaryKeyConstraint("engine", "run_id"),
)

configs: Final = Table(
    "configs",
    metadata,
    run(),
    big("at_ns"),
    string("fingerprint"),
    PrimaryKeyConstraint("run_key", "at_ns"),
)

strings: Final = Table(
    "strings",
    metadata,
    run(),
    big("string_id"),
    string("value"),
    PrimaryKeyConstraint("run_key", "string_id"),
)

kind_totals: Final = Table(
    "kind_totals",
    metadata,
    run(),
    big("kind"),
    big("stored"),
    big("lost"),
    PrimaryKeyConstraint("run_key", "kind"),
)

chunks: Final = Table(
    "chunks",
    metadata,
    run(),
    big("seq0"),
    big("num_records"),
    big("num_events"),
    big("hash_bytes"),
    big("start_at_ns"),
    big("end_at_ns"),
    big("crc"),
    blob("data"),
    PrimaryKeyConstraint("run_key", "seq0"),
    Index(None, "run_key", "start_at_ns"),
)

snapshots: Final = Table(
    "snapshots",
    metadata,
    run(),
    big("seq"),
    big("at_ns"),
    blob("map_data"),
    blob("state_data", null=True),  # kept for the newest one only
    big("detail_gone", default="0"),  # 1: the chunks up to the next snapshot were pruned
    PrimaryKeyConstraint("run_key", "seq"),
    Index(None, "run_key", "at_ns"),
    Index(None, "detail_gone", "at_ns", "run_key", "seq"),
)


rollups: Final = Table(
    "rollups",
    metadata,
    run(),
    big("tier_seconds"),
    big("at_ns"),
    *(big(name, null=True) for name in COLUMNS),
    big("repeats", default="0"),  # so many later intervals, right behind, were just the same
    PrimaryKeyConstraint("run_key", "tier_seconds", "at_ns"),
    sqlite_with_rowid=False,
)

latencies: Final = Table(
    "latencies",
    metadata,
    run(),
    string("metric"),
    big("tier_seconds"),
    big("at_ns"),
    big("count"),
    big("sum_ns"),
    big("min_ns"),
    big("max_ns"),
    big("p50_ns"),
    big("p95_ns"),
    big("p99_ns"),
    blob("histogram"),
    PrimaryKeyConstraint("run_key", "metric", "tier_seconds", "at_ns"),
    sqlite_with_rowid=False,
)

labelled: Final = Table(
    "labelled",
    metadata,
    run(),
    string("family"),
    big("tier_seconds"),
    big("at_ns"),
    string("label"),
    big("value"),
    PrimaryKeyConstraint("run_key", "family", "tier_seconds", "at_ns", "label"),
    sqlite_with_rowid=False,
)

requests: Final = Table(
    "requests",
    metadata,
    run(),
    big("owner"),
    big("parent"),
    string("tenant", null=True),
    string("state"),
    *(big(name, null=True) for name in REQUEST_TIMES),
    string("end_reason", null=True),
    string("reject_reason", null=True),
    *(big(name, null=True) for name in REQUEST_NUMBERS),
    Column("block_seconds", Double, nullable=True),
    string("wait_ns", null=True),  # JSON: cause to nanoseconds
    string("preempted_by"),  # JSON: owners
    string("alloc_failures"),  # JSON: cause to count
    big("spans_gap"),  # 1: a gap fell into its life
    string("wait_cause", null=True),  # why it waits now
    PrimaryKeyConstraint("run_key", "owner"),
    Index(None, "run_key", "arrived_at_ns"),
    Index(None, "run_key", "ended_at_ns"),
)

gaps: Final = Table(
    "gaps",
    metadata,
    run(),
    big("seq0"),
    big("seq1"),
    big("start_at_ns"),
    big("end_at_ns"),
    string("why"),
    string("lost"),  # JSON: kind to events
    PrimaryKeyConstraint("run_key", "seq0", "seq1"),
)

leaks: Final = Table(
    "leaks",
    metadata,
    run(),
    big("block"),
    big("owner"),
    big("since_at_ns"),
    big("ended_at_ns", null=True),
    PrimaryKeyConstraint("run_key", "block", "owner", "since_at_ns"),
)

broken_laws: Final = Table(
    "broken_laws",
    metadata,
    run(),
    string("law"),  # an audit too
    big("opened_at_ns"),
    big("closed_at_ns", null=True),  # NULL: it does not hold now, or did not when the run ended
    string("expected"),
    string("found"),
    string("blocks"),  # JSON: the first few
    big("num_blocks"),
    string("owners"),  # JSON: the first few; 4294967295 is an unknown one
    big("num_owners"),
    PrimaryKeyConstraint("run_key", "law", "opened_at_ns"),
)

clock_steps: Final = Table(
    "clock_steps",
    metadata,
    run(),
    big("at_ns"),  # on the run's own clock, which does not step
    big("step_ns"),  # below 0: back
    PrimaryKeyConstraint("run_key", "at_ns"),
)

gpu_samples: Final = Table(
    "gpu_samples",
    metadata,
    string("host"),  # the machine whose agent looked
    string("gpu"),  # its index, "0" or under MIG "0/1"; "" is the driver that could not be asked
    big("at_ns"),  # when the minute began
    string("name", null=True),
    big("num_looks"),
    big("memory_used_bytes", null=True),  # at its most
    big("memory_total_bytes", null=True),
    Column("utilization_ratio", Double, nullable=True),  # mean, as the next
    Column("power_watts", Double, nullable=True),
    string("missing"),  # JSON: figure, or nvml, to the reason why it is NULL
    PrimaryKeyConstraint("host", "gpu", "at_ns"),
    Index(None, "at_ns"),
    sqlite_with_rowid=False,
)

IS_OPEN: Final = text("closed_at_ns IS NULL")
incidents: Final = Table(
    "incidents",
    metadata,
    Column("incident_key", ROW_KEY, primary_key=True, autoincrement=True),
    string("engine"),
    run(),
    string("verdict"),
    string("opened_as"),  # its verdict at first: another cause may be found later
    big("opened_at_ns"),
    big("seen_at_ns"),  # when it held last, as of the last update
    big("updated_at_ns"),
    big("closed_at_ns", null=True),
    string("close_reason", null=True),
    string("confidence"),
    string("action"),
    string("summary"),
    big("peak_at_ns"),  # when it cost most
    Column("peak_impact", Double, nullable=False),  # sequences held up then
    string("opening"),  # JSON: the diagnosis that opened it
    string("evidence"),  # JSON: the newest diagnosis
    big("acknowledged_at_ns", null=True),
    string("acknowledged_by", null=True),
    string("acknowledged_note", null=True),
    big("told_opened_at_ns", null=True),  # when the webhook's receiver had it
    big("told_closed_at_ns", null=True),
    UniqueConstraint("run_key", "opened_as", "opened_at_ns"),
    Index(None, "engine", "opened_at_ns"),
    Index(None, "run_key", "verdict", unique=True, sqlite_where=IS_OPEN, postgresql_where=IS_OPEN),
)

baselines: Final = Table(
    "baselines",
    metadata,
    Column("baseline_key", ROW_KEY, primary_key=True, autoincrement=True),
    string("name"),
    string("engine"),
    string("fingerprint"),
    big("start_at_ns"),
    big("end_at_ns"),
    big("saved_at_ns"),
    big("tier_seconds"),
    string("traffic"),  # JSON: what the engine was asked to do
    string("completeness"),  # JSON: how much of the window was recorded
    string("figures"),  # JSON: the judged metrics as they were
    blob("series"),  # decode_series() reads it
    UniqueConstraint("name"),
)
