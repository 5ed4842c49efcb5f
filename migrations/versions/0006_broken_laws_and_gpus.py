"""Broken laws are conditions with a beginning and an end; the GPUs have a history."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

NONE_NAMED = "'[]', 0, '[]', 0"


def upgrade() -> None:
    """Keep one condition for each law that ever failed in a run; it ends where it failed last."""
    op.create_table(
        "broken_laws",
        sa.Column(
            "run_key",
            sa.BigInteger,
            sa.ForeignKey("runs.run_key", name="fk_broken_laws_run_key_runs"),
            nullable=False,
        ),
        sa.Column("law", sa.Text, nullable=False),
        sa.Column("opened_at_ns", sa.BigInteger, nullable=False),
        sa.Column("closed_at_ns", sa.BigInteger, nullable=True),
        sa.Column("expected", sa.Text, nullable=False),
        sa.Column("found", sa.Text, nullable=False),
        sa.Column("blocks", sa.Text, nullable=False),
        sa.Column("num_blocks", sa.BigInteger, nullable=False),
        sa.Column("owners", sa.Text, nullable=False),
        sa.Column("num_owners", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("run_key", "law", "opened_at_ns", name="pk_broken_laws"),
    )
    op.execute(
        "INSERT INTO broken_laws SELECT run_key, law, MIN(at_ns), MAX(at_ns), '', MIN(detail),"
        f" {NONE_NAMED} FROM audit_failures GROUP BY run_key, law"
    )
    op.drop_table("audit_failures")
    _create_gpu_samples()


def _create_gpu_samples() -> None:
    op.create_table(
        "gpu_samples",
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("gpu", sa.Text, nullable=False),
        sa.Column("at_ns", sa.BigInteger, nullable=False),
        sa.Column("name", sa.Text, nullable=True),
        sa.Column("num_looks", sa.BigInteger, nullable=False),
        sa.Column("memory_used_bytes", sa.BigInteger, nullable=True),
        sa.Column("memory_total_bytes", sa.BigInteger, nullable=True),
        sa.Column("utilization_ratio", sa.Double, nullable=True),
        sa.Column("power_watts", sa.Double, nullable=True),
        sa.Column("missing", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("host", "gpu", "at_ns", name="pk_gpu_samples"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_gpu_samples_at_ns", "gpu_samples", ["at_ns"])


def downgrade() -> None:
    """Make each condition one failure again; the GPUs' history goes."""
    op.drop_table("gpu_samples")
    op.create_table(
        "audit_failures",
        sa.Column(
            "run_key",
            sa.BigInteger,
            sa.ForeignKey("runs.run_key", name="fk_audit_failures_run_key_runs"),
            nullable=False,
        ),
        sa.Column("seq", sa.BigInteger, nullable=False),
        sa.Column("item_idx", sa.BigInteger, nullable=False),
        sa.Column("law", sa.Text, nullable=False),
        sa.Column("at_ns", sa.BigInteger, nullable=False),
        sa.Column("detail", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("run_key", "seq", "item_idx", name="pk_audit_failures"),
    )
    op.execute(
        "INSERT INTO audit_failures SELECT run_key, 0, ROW_NUMBER() OVER (PARTITION BY run_key"
        " ORDER BY opened_at_ns, law) - 1, law, opened_at_ns, found FROM broken_laws"
    )
    op.drop_table("broken_laws")
