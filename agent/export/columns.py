"""The columns of an exported table: their names, kinds and units. Pure."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from sqlalchemy import Double, Table, Text

from agent.reads.pages import column_names
from agent.store.schema import metadata

UINT64: Final = (1 << 64) - 1
FLAGS: Final = frozenset({"spans_gap"})
HASHES: Final = frozenset({"request_hash"})
JSON_TEXTS: Final = frozenset({"wait_ns", "preempted_by", "alloc_failures", "lost", "fingerprint"})
# The longest that fits: `tenant_block_ns` counts blocks times ns.
UNITS: Final = (
    ("_block_ns", "block ns"),
    ("_ns", "ns"),
    ("block_seconds", "block s"),
    ("_seconds", "s"),
    ("_tokens", "tokens"),
    ("_blocks", "blocks"),
    ("_blocks_min", "blocks"),
    ("_blocks_max", "blocks"),
    ("block_size", "tokens"),
    ("_slots", "token slots"),
)


class ColumnKind(StrEnum):
    """What a column holds."""

    TIME = "time"  # wall-clock ns since 1970, UTC
    INTEGER = "integer"
    UNSIGNED = "unsigned"  # u64, stored in two's complement
    NUMBER = "number"
    FLAG = "flag"
    TEXT = "text"


@dataclass(frozen=True, slots=True)
class Column:
    """One column: `source` is its name on the reading side, `name` that in the file."""

    source: str
    kind: ColumnKind

    @property
    def name(self) -> str:
        """The name in the file: a typed time needs no unit in it."""
        return self.source.removesuffix("_ns") if self.kind is ColumnKind.TIME else self.source

    @property
    def notes(self) -> dict[str, str]:
        """What the file's schema says of it beside its type."""
        if self.source in JSON_TEXTS:
            return {"format": "json"}
        if self.kind is ColumnKind.TEXT:
            return {}
        return {"unit": unit} if (unit := self._unit()) else {}

    def _unit(self) -> str | None:
        if self.kind is ColumnKind.TIME:
            return "ns since 1970-01-01T00:00:00Z"
        return next((unit for ending, unit in UNITS if self.source.endswith(ending)), None)

    def values_of(self, values: list[Any]) -> list[Any]:
        """Return stored values as the file has them; None stays None."""
        if self.kind is ColumnKind.UNSIGNED:
            return [None if value is None else value & UINT64 for value in values]
        if self.kind is ColumnKind.FLAG:
            return [None if value is None else bool(value) for value in values]
        return values


def integers(*names: str) -> tuple[Column, ...]:
    """Return columns of whole numbers."""
    return tuple(Column(name, ColumnKind.INTEGER) for name in names)


def times(*names: str) -> tuple[Column, ...]:
    """Return columns of moments."""
    return tuple(Column(name, ColumnKind.TIME) for name in names)


def texts(*names: str) -> tuple[Column, ...]:
    """Return columns of text."""
    return tuple(Column(name, ColumnKind.TEXT) for name in names)


def columns_of(table: str) -> tuple[Column, ...]:
    """Return the columns of a table of the store, as its schema has them."""
    stored = metadata.tables[table]
    return tuple(Column(name, _kind(stored, name)) for name in column_names(table))


def _kind(table: Table, name: str) -> ColumnKind:
    if name in FLAGS:
        return ColumnKind.FLAG
    if name in HASHES:
        return ColumnKind.UNSIGNED
    if name == "at_ns" or name.endswith("_at_ns"):
        return ColumnKind.TIME
    kind = table.columns[name].type
    if isinstance(kind, Text):
        return ColumnKind.TEXT
    return ColumnKind.NUMBER if isinstance(kind, Double) else ColumnKind.INTEGER
