"""The store's statements as SQL text, made once from the schema for one database.

They run through the driver's own `executemany`: a compiled SQLAlchemy insert costs three times as
much per row as the insert itself. `excluded` means the same on SQLite and Postgres.
"""

from dataclasses import dataclass
from typing import Final

from sqlalchemy import Table

from agent.store import schema
from agent.store.partitions import TIME_COLUMNS

# Columns of `runs` that a commit adds to, in the order of the statement's values.
RUN_TOTALS: Final = (
    "events_stored",
    "events_lost",
    "num_gaps",
    "num_chunks",
    "chunk_bytes",
    "audits_passed",
    "audits_failed",
)
PLACEHOLDERS: Final = {"sqlite": "?", "postgresql": "%s"}


@dataclass(frozen=True, slots=True)
class Statements:
    """SQL text per table: `insert` fails on a known key, `replace` overwrites, `add` adds up."""

    insert: dict[str, str]
    replace: dict[str, str]
    add_kinds: str
    move_position: str
    touch_run: str
    drop_states: str
    drop_chunk: str
    drop_rollup: str
    renew_lease: str


def make_statements(dialect: str) -> Statements:
    """Build the statements for `sqlite` or `postgresql`."""
    mark = PLACEHOLDERS[dialect]
    tables = schema.metadata.tables
    return Statements(
        insert={name: _insert(table, mark) for name, table in tables.items()},
        replace={
            name: _replace(table, mark, key_columns(table, dialect))
            for name, table in tables.items()
        },
        add_kinds=_insert(schema.kind_totals, mark)
        + " ON CONFLICT (run_key, kind) DO UPDATE SET stored = kind_totals.stored +"
        " excluded.stored, lost = kind_totals.lost + excluded.lost",
        move_position=f"UPDATE positions SET segment={mark}, record={mark}, seq={mark},"
        f" counts={mark}, lost={mark}, behind_records={mark},"
        f" unknown_records=unknown_records+{mark}, stamp={mark} WHERE run_key={mark} AND seq={mark}"
        f" AND segment={mark} AND record={mark}",
        touch_run="UPDATE runs SET "
        + ", ".join(f"{name}={name}+{mark}" for name in RUN_TOTALS)
        + f", last_event_at_ns=COALESCE({mark}, last_event_at_ns), last_commit_at_ns={mark}"
        f" WHERE run_key={mark}",
        drop_states=f"UPDATE snapshots SET state_data=NULL WHERE run_key={mark} AND seq<{mark}"
        " AND state_data IS NOT NULL",
        drop_chunk=f"DELETE FROM chunks WHERE run_key={mark} AND seq0={mark}"
        f" AND start_at_ns={mark}",
        drop_rollup=f"DELETE FROM rollups WHERE run_key={mark} AND tier_seconds={mark}"
        f" AND at_ns={mark}",
        renew_lease=f"UPDATE leases SET beat=beat+1, renewed_at_ns={mark} WHERE engine={mark}"
        f" AND run_id={mark} AND holder={mark}",
    )


def _insert(table: Table, mark: str) -> str:
    names = [column.name for column in table.columns]
    marks = ", ".join([mark] * len(names))
    return f"INSERT INTO {table.name} ({', '.join(names)}) VALUES ({marks})"


def key_columns(table: Table, dialect: str) -> list[str]:
    """Return a table's primary key; on Postgres with what its partitions are cut by."""
    keys = [column.name for column in table.primary_key.columns]
    time = TIME_COLUMNS.get(table.name)
    return [*keys, time] if dialect == "postgresql" and time and time not in keys else keys


def _replace(table: Table, mark: str, keys: list[str]) -> str:
    others = [column.name for column in table.columns if column.name not in keys]
    update = ", ".join(f"{name}=excluded.{name}" for name in others)
    return f"{_insert(table, mark)} ON CONFLICT ({', '.join(keys)}) DO UPDATE SET {update}"
