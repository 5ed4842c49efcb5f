"""Run revisions on the connection handed over, or on the store that KVPULSE_STORE names."""

import os

from alembic import context
from sqlalchemy import Connection

from agent.store.connection import open_for_writing, parse_address
from agent.store.schema import metadata


def run(connection: Connection) -> None:
    """Run the revisions asked for in one transaction."""
    context.configure(connection=connection, target_metadata=metadata, transactional_ddl=True)
    with context.begin_transaction():
        context.run_migrations()


given = context.config.attributes.get("connection")
if given is not None:
    run(given)
else:
    engine = open_for_writing(parse_address(os.environ["KVPULSE_STORE"]))
    with engine.begin() as connection:
        run(connection)
    engine.dispose()
