"""Incidents with their evidence and who acknowledged them; nothing wrote the former table."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Make the table anew. At most one incident of a run is open under each verdict."""
    op.drop_table("incidents")
    _create(
        _text("opened_as"),
        _big("seen_at_ns"),
        _big("updated_at_ns"),
        _text("close_reason", null=True),
        _text("confidence"),
        _text("action"),
        _text("summary"),
        _big("peak_at_ns"),
        sa.Column("peak_impact", sa.Double, nullable=False),
        _text("opening"),
        _text("acknowledged_by", null=True),
        _text("acknowledged_note", null=True),
        sa.UniqueConstraint(
            "run_key",
            "opened_as",
            "opened_at_ns",
            name="uq_incidents_run_key_opened_as_opened_at_ns",
        ),
    )
    op.create_index(
        "ix_incidents_run_key_verdict",
        "incidents",
        ["run_key", "verdict"],
        unique=True,
        sqlite_where=sa.text("closed_at_ns IS NULL"),
        postgresql_where=sa.text("closed_at_ns IS NULL"),
    )


def downgrade() -> None:
    """Make the former table, empty."""
    op.drop_table("incidents")
    _create()


def _text(name: str, *, null: bool = False) -> sa.Column:
    return sa.Column(name, sa.Text, nullable=null)


def _big(name: str, *, null: bool = False) -> sa.Column:
    return sa.Column(name, sa.BigInteger, nullable=null)


def _create(*more: sa.Column | sa.UniqueConstraint) -> None:
    op.create_table(
        "incidents",
        sa.Column("incident_key", KEY, autoincrement=True, nullable=False),
        _text("engine"),
        sa.Column(
            "run_key",
            sa.BigInteger,
            sa.ForeignKey("runs.run_key", name="fk_incidents_run_key_runs"),
            nullable=False,
        ),
        _text("verdict"),
        _big("opened_at_ns"),
        _big("closed_at_ns", null=True),
        _big("acknowledged_at_ns", null=True),
        _text("evidence"),
        *more,
        sa.PrimaryKeyConstraint("incident_key", name="pk_incidents"),
    )
    op.create_index("ix_incidents_engine_opened_at_ns", "incidents", ["engine", "opened_at_ns"])
