"""Baselines with their frozen series; the table was there before, and nothing wrote it."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Make the table anew, with the series and what stands beside it."""
    op.drop_table("baselines")
    _create(
        sa.Column("tier_seconds", sa.BigInteger, nullable=False),
        sa.Column("traffic", sa.Text, nullable=False),
        sa.Column("completeness", sa.Text, nullable=False),
        sa.Column("figures", sa.Text, nullable=False),
        sa.Column("series", sa.LargeBinary, nullable=False),
    )


def downgrade() -> None:
    """Make the former table, empty: an older kvpulse cannot compare without a series."""
    op.drop_table("baselines")
    _create(sa.Column("figures", sa.Text, nullable=False))


def _create(*more: sa.Column) -> None:
    op.create_table(
        "baselines",
        sa.Column("baseline_key", KEY, primary_key=True, autoincrement=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("engine", sa.Text, nullable=False),
        sa.Column("fingerprint", sa.Text, nullable=False),
        sa.Column("start_at_ns", sa.BigInteger, nullable=False),
        sa.Column("end_at_ns", sa.BigInteger, nullable=False),
        sa.Column("saved_at_ns", sa.BigInteger, nullable=False),
        *more,
        sa.UniqueConstraint("name", name="uq_baselines_name"),
        sa.PrimaryKeyConstraint("baseline_key", name="pk_baselines"),
    )
