"""A lease tells when it was renewed, so that a silent engine is told from a silent agent."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the time; of leases that are held now it comes with the next renewal."""
    op.add_column("leases", sa.Column("renewed_at_ns", sa.BigInteger, nullable=True))


def downgrade() -> None:
    """Drop the time."""
    op.drop_column("leases", "renewed_at_ns")
