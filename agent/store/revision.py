"""Bring the store's schema up to date, or say that it is not.

Which revisions exist is written down here (and held equal to `migrations/versions` by a test), so
that looking costs one query and no import of Alembic.
"""

from pathlib import Path
from typing import Final

from sqlalchemy import Connection, Engine, inspect, text
from sqlalchemy.exc import DBAPIError

from agent.errors import StoreTooNew, StoreTooOld, StoreUnwritable
from agent.store.connection import StoreAddress, first_line

REVISIONS: Final = (
    *("0001", "0002", "0003", "0004", "0005", "0006", "0007", "0008"),
    *("0009", "0010", "0011"),
)
HEAD: Final = REVISIONS[-1]
UPGRADE_LOCK: Final = 0x6B76_7075  # advisory lock on Postgres, so that two agents take turns


def stored_revision(connection: Connection) -> str | None:
    """Return the revision that the store is at; None without a schema."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar()


def check_revision(engine: Engine, address: StoreAddress) -> None:
    """Raise unless the store is at the newest revision that this code knows.

    Raises:
        StoreTooNew: A newer kvpulse wrote it.
        StoreTooOld: It lacks revisions, or the whole schema.
    """
    with engine.connect() as connection:
        found = stored_revision(connection)
    if found is not None and found not in REVISIONS:
        raise StoreTooNew(address.label, found, HEAD)
    if found != HEAD:
        raise StoreTooOld(address.label, found, HEAD)


def upgrade(engine: Engine, address: StoreAddress) -> str | None:
    """Apply the revisions that are missing, in one transaction; return the one it was at.

    Raises:
        StoreTooNew: A newer kvpulse wrote it; nothing is changed.
        StoreUnwritable: The database refused.
    """
    try:
        with engine.begin() as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(text("SET LOCAL lock_timeout = 0"))  # another may take long
                connection.execute(text(f"SELECT pg_advisory_xact_lock({UPGRADE_LOCK})"))
            found = stored_revision(connection)
            if found is not None and found not in REVISIONS:
                raise StoreTooNew(address.label, found, HEAD)
            if found != HEAD:
                migrate(connection, HEAD)
    except DBAPIError as error:
        raise StoreUnwritable(address.label, first_line(error)) from error
    return found


def migrate(connection: Connection, revision: str) -> None:
    """Go up or down to a revision (`base` for none) on an open transaction."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    folder = Path(__file__).parents[2] / "migrations"
    config.set_main_option("script_location", str(folder).replace("%", "%%"))
    config.attributes["connection"] = connection
    known = ("base", *REVISIONS)
    found = stored_revision(connection) or "base"
    if known.index(revision) >= known.index(found):
        command.upgrade(config, revision)
    else:
        command.downgrade(config, revision)
