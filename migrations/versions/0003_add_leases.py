"""Who writes a stream: a lease per stream, and a stamp of the commit that moved its position."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table, and the column; commits before had no stamp."""
    op.create_table(
        "leases",
        sa.Column("engine", sa.Text, nullable=False),
        sa.Column("run_id", sa.Text, nullable=False),
        sa.Column("holder", sa.Text, nullable=False),
        sa.Column("process", sa.Text, nullable=False),
        sa.Column("beat", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("engine", "run_id", name="pk_leases"),
    )
    op.add_column(
        "positions", sa.Column("stamp", sa.BigInteger, nullable=False, server_default="0")
    )


def downgrade() -> None:
    """Drop both; an agent that runs meanwhile stops at its next commit."""
    op.drop_column("positions", "stamp")
    op.drop_table("leases")
