"""What retention took, and rollup rows that stand for later intervals too."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

COLUMNS = (
    ("runs", "events_pruned"),
    ("runs", "requests_pruned"),
    ("snapshots", "detail_gone"),
    ("rollups", "repeats"),
)
INDEX = "ix_snapshots_detail_gone_at_ns_run_key_seq"


def upgrade() -> None:
    """Add the columns; nothing was pruned before, and every row stood for itself."""
    for table, name in COLUMNS:
        column = sa.Column(name, sa.BigInteger, nullable=False, server_default="0")
        op.add_column(table, column)
    op.create_index(INDEX, "snapshots", ["detail_gone", "at_ns", "run_key", "seq"])


def downgrade() -> None:
    """Drop the columns; snapshots without their chunks go, as an older kvpulse trusts them."""
    op.drop_index(INDEX, "snapshots")
    op.execute("DELETE FROM snapshots WHERE detail_gone = 1")
    for table, name in COLUMNS:
        op.drop_column(table, name)
