"""The columns that the store's tables are made of, by type."""

from typing import Final

from sqlalchemy import BigInteger, Column, ForeignKey, Integer, LargeBinary, Text

# SQLite makes only an INTEGER primary key count up by itself.
ROW_KEY: Final = BigInteger().with_variant(Integer(), "sqlite")


def big(name: str, *, null: bool = False, default: str | None = None) -> Column[int]:
    """Return a column of 64-bit integers: numbers, ids, times, durations."""
    return Column(name, BigInteger, nullable=null, server_default=default)


def string(name: str, *, null: bool = False) -> Column[str]:
    """Return a column of text."""
    return Column(name, Text, nullable=null)


def blob(name: str, *, null: bool = False) -> Column[bytes]:
    """Return a column of bytes."""
    return Column(name, LargeBinary, nullable=null)


def run() -> Column[int]:
    """Return the column that says of which run a row is."""
    return Column("run_key", BigInteger, ForeignKey("runs.run_key"), nullable=False)
