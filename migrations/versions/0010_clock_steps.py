"""Steps of an engine's wall clock."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "clock_steps",
        sa.Column(
            "run_key",
            sa.BigInteger,
            sa.ForeignKey("runs.run_key", name="fk_clock_steps_run_key_runs"),
            nullable=False,
        ),
        sa.Column("at_ns", sa.BigInteger, nullable=False),
        sa.Column("step_ns", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("run_key", "at_ns", name="pk_clock_steps"),
    )


def downgrade() -> None:
    """Drop the table."""
    op.drop_table("clock_steps")
