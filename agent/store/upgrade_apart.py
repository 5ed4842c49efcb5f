"""Bring a store's schema up to date in a process of its own, whose memory goes with it.

Alembic and what it imports stay in a process for good: 10 MB of an agent that runs for months, for
what takes a second of its first day.
"""

import subprocess
import sys

from sqlalchemy.exc import DBAPIError

from agent.errors import StoreError, StoreNotFound
from agent.store.connection import StoreAddress, open_for_reading, parse_address
from agent.store.revision import HEAD, stored_revision
from agent.store.store import Store


def upgrade_apart(where: str) -> None:
    """Upgrade a store that lacks revisions; what fails here is met, and said, when it is opened.

    Args:
        where: The path of an SQLite file or an SQLAlchemy URL. It goes to the process by its
            standard input, since command lines are shown by `ps` and an URL may hold a password.

    Raises:
        ConfigError: It is a URL of a database that the store cannot use.
    """
    if _lacks_revisions(parse_address(where)):
        # -P: a folder named `agent` in the working directory is not ours.
        command = [sys.executable, "-P", "-m", __name__]
        nowhere = subprocess.DEVNULL
        subprocess.run(command, input=where, text=True, stdout=nowhere, stderr=nowhere, check=False)


def _lacks_revisions(address: StoreAddress) -> bool:
    try:
        engine = open_for_reading(address)
    except StoreNotFound:
        return address.path is not None  # a server that cannot be reached is met once more, later
    try:
        with engine.connect() as connection:
            return stored_revision(connection) != HEAD
    except DBAPIError:
        return False
    finally:
        engine.dispose()


if __name__ == "__main__":
    try:
        Store.open(sys.stdin.read()).close()
    except StoreError:
        sys.exit(1)
