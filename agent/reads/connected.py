"""What every part of the reading side stands on: connections that only read."""

from collections.abc import Iterator
from contextlib import contextmanager
from json import JSONDecodeError

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from agent.errors import StoreUnreadable
from agent.store.connection import first_line


class Connected:
    """One store, opened for reading; see `agent.reads.reads.open_reads`."""

    def __init__(self, engine: Engine, label: str) -> None:
        self._engine = engine
        self._label = label

    @property
    def label(self) -> str:
        """Where the store is, for people: without a password."""
        return self._label

    def close(self) -> None:
        """Close every connection."""
        self._engine.dispose()

    @contextmanager
    def _connection(self) -> Iterator[Connection]:
        """Lend a connection; what the database complains of becomes a `StoreUnreadable`."""
        try:
            with self._engine.connect() as connection:
                yield connection
        except SQLAlchemyError as error:
            raise StoreUnreadable(self._label, first_line(error)) from error
        except (JSONDecodeError, RecursionError) as error:
            raise StoreUnreadable(self._label, f"a stored text is damaged: {error}") from error
