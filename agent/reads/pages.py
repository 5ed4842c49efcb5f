"""Whole tables of a run, page by page: what an export reads.

Each page is a statement of its own and begins behind the last key of the one before. So no page
holds back the agent that writes meanwhile, and memory does not grow with the table; a row that
changes between two pages is given once, as it was when its page was read.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import Any, Final

from sqlalchemy import Connection, LargeBinary, text

from agent.reads.repeats import first_row_at
from agent.reads.series import rollup_rows
from agent.reads.tiers import NS, Stretch, Window
from agent.rollups.scalars import COLUMNS
from agent.store.schema import metadata

PAGE_ROWS: Final = 8_192
_OVERLAPS: Final = "at_ns<:end AND at_ns+tier_seconds*1000000000>:start"
# What of each table belongs to a window `[:start, :end)`: as the rest of the reading side has it.
PAGED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "requests": (
            "(arrived_at_ns IS NULL OR arrived_at_ns<:end)"
            " AND (ended_at_ns IS NULL OR ended_at_ns>=:start)"
        ),
        "latencies": _OVERLAPS,
        "labelled": _OVERLAPS,
        "gaps": "start_at_ns<:end AND end_at_ns>=:start",
        "leaks": "since_at_ns<:end AND (ended_at_ns IS NULL OR ended_at_ns>=:start)",
        "broken_laws": "opened_at_ns<:end AND (closed_at_ns IS NULL OR closed_at_ns>=:start)",
    }
)

Page = dict[str, list[Any]]  # some rows, column by column, as they are stored: None is NULL
Connect = Callable[[], AbstractContextManager[Connection]]


def column_names(table: str) -> list[str]:
    """Return the columns of a paged table: all but the run's key and what only the store reads."""
    return [
        column.name
        for column in metadata.tables[table].columns
        if column.name != "run_key" and not isinstance(column.type, LargeBinary)
    ]


def iterate_pages(connect: Connect, table: str, run_key: int, window: Window) -> Iterator[Page]:
    """Yield the rows of a table, at most `max_points` of them a page, in the order of its key."""
    key = [column.name for column in metadata.tables[table].primary_key.columns][1:]
    after: list[object] = []
    while True:
        with connect() as connection:
            page = _read_page(connection, table, run_key, window, key, after)
        if page is None:
            return
        yield page
        after = [page[name][-1] for name in key]


def _read_page(
    connection: Connection,
    table: str,
    run_key: int,
    window: Window,
    key: Sequence[str],
    after: Sequence[object],
) -> Page | None:
    names = column_names(table)
    bind: dict[str, object] = {
        "key": run_key,
        "start": window.start_ns,
        "end": window.end_ns,
        "limit": window.max_points,
        **{f"after_{place}": value for place, value in enumerate(after)},
    }
    marks = ", ".join(f":after_{place}" for place in range(len(after)))
    behind = f" AND ({', '.join(key)}) > ({marks})" if after else ""
    query = (
        f"SELECT {', '.join(names)} FROM {table} WHERE run_key=:key AND {PAGED[table]}{behind}"
        f" ORDER BY {', '.join(key)} LIMIT :limit"
    )
    rows = connection.execute(text(query), bind).all()
    columns = [list(column) for column in zip(*rows, strict=True)]
    return dict(zip(names, columns, strict=True)) if rows else None


def iterate_rollup_pages(connect: Connect, run_key: int, stretch: Stretch) -> Iterator[Page]:
    """Yield the intervals of a stretch that have values, repeated ones too, oldest first."""
    step = stretch.tier_seconds * NS
    while True:
        with connect() as connection:
            begin = _first_interval_at(connection, run_key, stretch)
            if begin is None:
                return
            end = min(stretch.end_ns, begin + PAGE_ROWS * step)
            part = Stretch(stretch.tier_seconds, begin, end)
            stored, intervals = rollup_rows(connection, run_key, part, COLUMNS)
        row_idx = intervals.row_idx.tolist()
        page: Page = {
            "tier_seconds": [stretch.tier_seconds] * len(row_idx),
            "at_ns": intervals.at_ns.tolist(),
        }
        for name, values in zip(COLUMNS, stored, strict=True):
            page[name] = [values[index] for index in row_idx]
        yield page
        stretch = stretch._replace(start_ns=end)


def _first_interval_at(connection: Connection, run_key: int, stretch: Stretch) -> int | None:
    """Return where the first interval of a stretch begins, so that empty time costs nothing."""
    before = first_row_at(connection, run_key, stretch)
    if before < stretch.start_ns:
        return stretch.start_ns
    first: int | None = connection.execute(
        text(
            "SELECT MIN(at_ns) FROM rollups WHERE run_key=:key AND tier_seconds=:tier"
            " AND at_ns>=:start AND at_ns<:end"
        ),
        {
            "key": run_key,
            "tier": stretch.tier_seconds,
            "start": stretch.start_ns,
            "end": stretch.end_ns,
        },
    ).scalar()
    return first
