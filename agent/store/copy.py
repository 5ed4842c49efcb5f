"""Rows into the store's tables, by whichever way its database takes them fastest.

Postgres takes many rows by binary COPY on the transaction's own connection: into the table itself
where keys are new, else into a temporary table from where they replace those of the same key. A few
rows are quicker by the driver's `executemany`, which is all that SQLite has.
"""

from collections.abc import Sequence
from typing import Any, Final, Protocol

from sqlalchemy import BigInteger, Connection, Double, Engine, Integer, LargeBinary, Table, Text
from sqlalchemy.exc import DBAPIError

from agent.store import schema
from agent.store.rows import Row
from agent.store.statements import Statements, key_columns

FEWEST_ROWS: Final = 32  # measured: below, one round trip of inserts beats three of a COPY
TYPES: Final = {
    BigInteger: "int8",
    Integer: "int4",
    Double: "float8",
    LargeBinary: "bytea",
    Text: "text",
}


class RowWriter(Protocol):
    """Writes rows in the column order of `agent.store.schema`."""

    def insert(self, connection: Connection, table: str, rows: Sequence[Row]) -> None:
        """Add rows whose keys are new."""

    def replace(self, connection: Connection, table: str, rows: Sequence[Row]) -> None:
        """Add rows; one whose key is there takes its place, and the last of equal keys counts."""


class InsertedRows:
    """By the driver's `executemany`."""

    def __init__(self, statements: Statements) -> None:
        self._statements = statements

    def insert(self, connection: Connection, table: str, rows: Sequence[Row]) -> None:
        """Add rows whose keys are new."""
        connection.exec_driver_sql(self._statements.insert[table], list(rows))

    def replace(self, connection: Connection, table: str, rows: Sequence[Row]) -> None:
        """Add rows, or put them in the place of those with their keys."""
        connection.exec_driver_sql(self._statements.replace[table], list(rows))


class CopiedRows:
    """By binary COPY where there are many."""

    def __init__(self, few: RowWriter, *, fewest: int = FEWEST_ROWS) -> None:
        self._few = few
        self._fewest = fewest
        self._plans = {name: _Plan(table) for name, table in schema.metadata.tables.items()}

    def insert(self, connection: Connection, table: str, rows: Sequence[Row]) -> None:
        """Add rows whose keys are new."""
        if len(rows) < self._fewest:
            self._few.insert(connection, table, rows)
        else:
            _copy(connection, table, self._plans[table], rows)

    def replace(self, connection: Connection, table: str, rows: Sequence[Row]) -> None:
        """Add rows, or put them in the place of those with their keys."""
        if len(rows) < self._fewest:
            self._few.replace(connection, table, rows)
            return
        plan = self._plans[table]
        # One statement may not replace a row twice.
        last = {tuple(row[place] for place in plan.key_places): row for row in rows}
        # On commit: the connection goes on to serve, and its temporary table with it.
        connection.exec_driver_sql(
            f"CREATE TEMPORARY TABLE IF NOT EXISTS new_{table} (LIKE {table}) ON COMMIT DELETE ROWS"
        )
        _copy(connection, f"new_{table}", plan, list(last.values()))
        connection.exec_driver_sql(plan.merge)


def row_writer(engine: Engine, statements: Statements) -> RowWriter:
    """Return the fastest way that an engine's database and driver have."""
    inserted = InsertedRows(statements)
    return CopiedRows(inserted) if engine.dialect.driver == "psycopg" else inserted


class _Plan:
    """What is worked out once for a table."""

    def __init__(self, table: Table) -> None:
        names = [column.name for column in table.columns]
        keys = key_columns(table, "postgresql")
        others = ", ".join(f"{name}=excluded.{name}" for name in names if name not in keys)
        self.columns = ", ".join(names)
        self.types = [_type(column.type) for column in table.columns]
        self.key_places = [names.index(name) for name in keys]
        self.merge = (
            f"INSERT INTO {table.name} ({self.columns}) SELECT {self.columns} FROM"
            f" new_{table.name} ON CONFLICT ({', '.join(keys)}) DO UPDATE SET {others}"
        )


def _type(kind: object) -> str:
    return next(name for known, name in TYPES.items() if isinstance(kind, known))


def _copy(connection: Connection, target: str, plan: _Plan, rows: Sequence[Row]) -> None:
    driver: Any = connection.connection.driver_connection
    errors: Any = connection.dialect.loaded_dbapi
    statement = f"COPY {target} ({plan.columns}) FROM STDIN (FORMAT BINARY)"
    try:
        with driver.cursor() as cursor, cursor.copy(statement) as copy:
            copy.set_types(plan.types)
            for row in rows:
                copy.write_row(row)
    except errors.Error as error:  # as SQLAlchemy would have wrapped it
        raise DBAPIError.instance(statement, None, error, errors.Error) from error
