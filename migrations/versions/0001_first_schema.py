"""The first schema: runs, chunks, snapshots, rollups, requests and what surrounds them."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# SQLite makes only an INTEGER primary key count up by itself.
ROW_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

SCALARS = """
    active_blocks cached_blocks free_blocks total_blocks filled_slots logical_blocks running
    waiting live_sequences blocks_needed active_blocks_min active_blocks_max cached_blocks_min
    cached_blocks_max free_blocks_min free_blocks_max allocated shared freed evicted cached_new
    copied preempted resumed arrived admitted finished rejected cancelled prefill_tokens
    decode_tokens steps step_ns schedule_ns compute_ns sample_ns prefix_hit_tokens
    prefix_queried_tokens resume_hit_tokens recomputed_tokens tokens_lost allocate_failures
    wait_pool_ns wait_scheduler_ns wait_quota_ns wait_transfer_ns wait_after_preempt_ns
    active_block_ns refused_frees forked events_stored events_lost audits_passed audits_failed
"""

BLOBS = (("chunks", "data"), ("snapshots", "map_data"), ("snapshots", "state_data"))


def upgrade() -> None:
    """Create the tables."""
    _create_runs()
    _create_details()
    _create_rollups()
    _create_requests()
    _create_faults()
    _create_findings()
    if op.get_bind().dialect.name == "postgresql":
        for table, column in BLOBS:  # compressed already
            op.execute(f"ALTER TABLE {table} ALTER COLUMN {column} SET STORAGE EXTERNAL")


def downgrade() -> None:
    """Drop the tables, those that point at others first."""
    for table in reversed(TABLES):
        op.drop_table(table)


TABLES = (
    "runs",
    "positions",
    "configs",
    "strings",
    "kind_totals",
    "chunks",
    "snapshots",
    "rollups",
    "latencies",
    "labelled",
    "requests",
    "gaps",
    "leaks",
    "audit_failures",
    "incidents",
    "baselines",
)


def _create_runs() -> None:
    op.create_table(
        "runs",
        sa.Column("run_key", ROW_KEY, autoincrement=True, nullable=False),
        _text("engine"),
        _text("run_id"),
        _text("state"),
        _text("fingerprint"),
        _big("wall_offset_ns"),
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
        sa.PrimaryKeyConstraint("run_key", name="pk_runs"),
        sa.UniqueConstraint("engine", "run_id", name="uq_runs_engine_run_id"),
    )
    op.create_table(
        "positions",
        _run("positions"),
        _big("segment"),
        _big("record"),
        _big("seq"),
        _blob("counts"),
        _blob("lost"),
        _big("behind_records", default="0"),
        _big("unknown_records", default="0"),
        sa.PrimaryKeyConstraint("run_key", name="pk_positions"),
    )
    op.create_table(
        "configs",
        _run("configs"),
        _big("at_ns"),
        _text("fingerprint"),
        sa.PrimaryKeyConstraint("run_key", "at_ns", name="pk_configs"),
    )
    op.create_table(
        "strings",
        _run("strings"),
        _big("string_id"),
        _text("value"),
        sa.PrimaryKeyConstraint("run_key", "string_id", name="pk_strings"),
    )
    op.create_table(
        "kind_totals",
        _run("kind_totals"),
        _big("kind"),
        _big("stored"),
        _big("lost"),
        sa.PrimaryKeyConstraint("run_key", "kind", name="pk_kind_totals"),
    )


def _create_details() -> None:
    op.create_table(
        "chunks",
        _run("chunks"),
        _big("seq0"),
        _big("num_records"),
        _big("num_events"),
        _big("hash_bytes"),
        _big("start_at_ns"),
        _big("end_at_ns"),
        _big("crc"),
        _blob("data"),
        sa.PrimaryKeyConstraint("run_key", "seq0", name="pk_chunks"),
    )
    op.create_index("ix_chunks_run_key_start_at_ns", "chunks", ["run_key", "start_at_ns"])
    op.create_table(
        "snapshots",
        _run("snapshots"),
        _big("seq"),
        _big("at_ns"),
        _blob("map_data"),
        _blob("state_data", null=True),
        sa.PrimaryKeyConstraint("run_key", "seq", name="pk_snapshots"),
    )
    op.create_index("ix_snapshots_run_key_at_ns", "snapshots", ["run_key", "at_ns"])


def _create_rollups() -> None:
    op.create_table(
        "rollups",
        _run("rollups"),
        _big("tier_seconds"),
        _big("at_ns"),
        *(_big(name, null=True) for name in SCALARS.split()),
        sa.PrimaryKeyConstraint("run_key", "tier_seconds", "at_ns", name="pk_rollups"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "latencies",
        _run("latencies"),
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
        sa.PrimaryKeyConstraint("run_key", "metric", "tier_seconds", "at_ns", name="pk_latencies"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "labelled",
        _run("labelled"),
        _text("family"),
        _big("tier_seconds"),
        _big("at_ns"),
        _text("label"),
        _big("value"),
        sa.PrimaryKeyConstraint(
            "run_key", "family", "tier_seconds", "at_ns", "label", name="pk_labelled"
        ),
        sqlite_with_rowid=False,
    )


def _create_requests() -> None:
    op.create_table(
        "requests",
        _run("requests"),
        _big("owner"),
        _big("parent"),
        _text("tenant", null=True),
        _text("state"),
        _big("arrived_at_ns", null=True),
        _big("admitted_at_ns", null=True),
        _big("first_token_at_ns", null=True),
        _big("ended_at_ns", null=True),
        _big("deadline_at_ns", null=True),
        _text("end_reason", null=True),
        _text("reject_reason", null=True),
        _big("prompt_tokens", null=True),
        _big("max_tokens", null=True),
        _big("asked_max_tokens", null=True),
        _big("output_tokens", null=True),
        _big("priority", null=True),
        _big("tier", null=True),
        _big("retry", null=True),
        _big("request_hash", null=True),
        _big("logical_blocks", null=True),
        _big("physical_blocks", null=True),
        _big("shared_within", null=True),
        _big("shared_across", null=True),
        _big("peak_blocks", null=True),
        _big("filled_slots", null=True),
        _big("wait_pool_ns", null=True),
        _big("wait_scheduler_ns", null=True),
        _big("wait_quota_ns", null=True),
        _big("wait_transfer_ns", null=True),
        _big("wait_after_preempt_ns", null=True),
        _big("preemptions", null=True),
        _big("recomputed_tokens", null=True),
        _big("prefix_hit_tokens", null=True),
        _big("time_to_first_block_ns", null=True),
        _real("block_seconds"),
        _text("wait_ns", null=True),
        _text("preempted_by"),
        _text("alloc_failures"),
        _big("spans_gap"),
        sa.PrimaryKeyConstraint("run_key", "owner", name="pk_requests"),
    )
    op.create_index("ix_requests_run_key_arrived_at_ns", "requests", ["run_key", "arrived_at_ns"])
    op.create_index("ix_requests_run_key_ended_at_ns", "requests", ["run_key", "ended_at_ns"])


def _create_faults() -> None:
    op.create_table(
        "gaps",
        _run("gaps"),
        _big("seq0"),
        _big("seq1"),
        _big("start_at_ns"),
        _big("end_at_ns"),
        _text("why"),
        _text("lost"),
        sa.PrimaryKeyConstraint("run_key", "seq0", "seq1", name="pk_gaps"),
    )
    op.create_table(
        "leaks",
        _run("leaks"),
        _big("block"),
        _big("owner"),
        _big("since_at_ns"),
        _big("ended_at_ns", null=True),
        sa.PrimaryKeyConstraint("run_key", "block", "owner", "since_at_ns", name="pk_leaks"),
    )
    op.create_table(
        "audit_failures",
        _run("audit_failures"),
        _big("seq"),
        _big("item_idx"),
        _text("law"),
        _big("at_ns"),
        _text("detail"),
        sa.PrimaryKeyConstraint("run_key", "seq", "item_idx", name="pk_audit_failures"),
    )


def _create_findings() -> None:
    op.create_table(
        "incidents",
        sa.Column("incident_key", ROW_KEY, autoincrement=True, nullable=False),
        _text("engine"),
        _run("incidents"),
        _text("verdict"),
        _big("opened_at_ns"),
        _big("closed_at_ns", null=True),
        _big("acknowledged_at_ns", null=True),
        _text("evidence"),
        sa.PrimaryKeyConstraint("incident_key", name="pk_incidents"),
    )
    op.create_index("ix_incidents_engine_opened_at_ns", "incidents", ["engine", "opened_at_ns"])
    op.create_table(
        "baselines",
        sa.Column("baseline_key", ROW_KEY, autoincrement=True, nullable=False),
        _text("name"),
        _text("engine"),
        _text("fingerprint"),
        _big("start_at_ns"),
        _big("end_at_ns"),
        _big("saved_at_ns"),
        _text("figures"),
        sa.PrimaryKeyConstraint("baseline_key", name="pk_baselines"),
        sa.UniqueConstraint("name", name="uq_baselines_name"),
    )


def _run(table: str) -> sa.Column:
    runs_key = sa.ForeignKey("runs.run_key", name=f"fk_{table}_run_key_runs")
    return sa.Column("run_key", sa.BigInteger, runs_key, nullable=False)


def _big(name: str, *, null: bool = False, default: str | None = None) -> sa.Column:
    return sa.Column(name, sa.BigInteger, nullable=null, server_default=default)


def _real(name: str) -> sa.Column:
    return sa.Column(name, sa.Double, nullable=True)


def _text(name: str, *, null: bool = False) -> sa.Column:
    return sa.Column(name, sa.Text, nullable=null)


def _blob(name: str, *, null: bool = False) -> sa.Column:
    return sa.Column(name, sa.LargeBinary, nullable=null)
