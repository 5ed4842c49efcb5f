"""What forks, swaps, preemptions and blockers came to, per interval and per sequence."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

ROLLUPS = """
    filled_of_blocks host_active_blocks host_total_blocks swapped sequences_finished swapped_out
    swapped_in preempted_by_swap preempt_freed_blocks preempt_kept_blocks retries rejected_retries
    outlived_block_ns
"""
REQUESTS = """
    frontend_ns blocker blocked_others_ns needed_blocks tokens_lost tokens_found blocks_kept swaps
    host_blocks
"""


def upgrade() -> None:
    """Add the columns; what was stored before has not measured them."""
    for table, names in (("rollups", ROLLUPS), ("requests", REQUESTS)):
        for name in names.split():
            op.add_column(table, sa.Column(name, sa.BigInteger, nullable=True))
    op.add_column("requests", sa.Column("wait_cause", sa.Text, nullable=True))


def downgrade() -> None:
    """Drop the columns; states that know of them cannot be resumed from by an older agent."""
    op.execute("UPDATE snapshots SET state_data = NULL")
    for table, names in (("rollups", ROLLUPS), ("requests", REQUESTS)):
        for name in names.split():
            op.drop_column(table, name)
    op.drop_column("requests", "wait_cause")
