"""When the webhook's receiver was told of an incident's opening and of its closing."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

COLUMNS = ("told_opened_at_ns", "told_closed_at_ns")


def upgrade() -> None:
    """Add the columns; nobody was told before."""
    for name in COLUMNS:
        op.add_column("incidents", sa.Column(name, sa.BigInteger, nullable=True))


def downgrade() -> None:
    """Drop the columns."""
    for name in COLUMNS:
        op.drop_column("incidents", name)
