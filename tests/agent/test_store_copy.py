"""Rows by binary COPY are the rows that inserts make; a refused one leaves nothing behind."""

from collections.abc import Iterator

import pytest
from sqlalchemy import text

from agent.errors import StoreConflict, StoreUnwritable
from agent.store.copy import FEWEST_ROWS, CopiedRows, InsertedRows
from agent.store.partitions import DAY_NS, TIER_WIDTH_NS, partition_at
from agent.store.rows import Row, request_rows, rollup_rows
from agent.store.schema import metadata
from agent.store.statements import make_statements
from agent.store.store import Store
from tests.agent.factories_store import (
    NS,
    OFFSET,
    SHAPE,
    STREAM,
    chunk,
    delta,
    latency,
    progress,
    request,
    rollup,
)
from tests.postgres import postgres_server, postgres_url  # noqa: F401 - fixtures

pytestmark = pytest.mark.postgres
INSERTED = InsertedRows(make_statements("postgresql"))
COPIED = CopiedRows(INSERTED, fewest=1)


@pytest.fixture
def store(postgres_url: str) -> Iterator[Store]:  # noqa: F811
    with Store.open(postgres_url) as store:
        store.writer(STREAM).commit(delta(1), SHAPE, progress(1))
        parts = {partition_at(f"rollups_{tier}s", OFFSET, TIER_WIDTH_NS[tier]) for tier in (1, 10)}
        store._writing.partitions.ensure({*parts, partition_at("chunks", 1, DAY_NS)})
        yield store


def rows_of(store: Store, table: str) -> list[Row]:
    keys = ", ".join(column.name for column in metadata.tables[table].primary_key.columns)
    with store._engine.connect() as connection:
        found = connection.execute(text(f"SELECT * FROM {table} ORDER BY {keys}"))
        return [tuple(bytes(v) if isinstance(v, memoryview) else v for v in row) for row in found]


def some_rows() -> dict[str, list[Row]]:
    requests = [
        request(1, tenant='a"b\t\\N\n', request_hash=2**63 + 5, block_seconds=0.1),
        request(2, tenant="", wait_ns={"pool": 5}, preempted_by=(1, 3), priority=-(2**31)),
        request(3, tenant=None, ended_ns=8 * NS, state="finished", block_seconds=float("1e-300")),
    ]
    return {
        "requests": request_rows(1, OFFSET, requests),
        "rollups": rollup_rows(
            1, OFFSET, [(rollup(1, 7, steps=3), 0), (rollup(10, 0, running=2**62), 9)]
        ),
        "chunks": [(1, 5, 4, 4, 0, 1, 2, 2**32 - 1, bytes(range(256)))],
    }


@pytest.mark.parametrize("table", ["requests", "rollups", "chunks"])
def test_copied_rows_are_those_that_were_inserted(store: Store, table: str) -> None:
    rows = some_rows()[table]
    found = []
    for writer in (INSERTED, COPIED):
        with store._transaction() as connection:
            connection.execute(text(f"DELETE FROM {table}"))
            writer.insert(connection, table, rows)
        found.append(rows_of(store, table))

    assert found[0] == found[1]
    assert len(found[0]) == len(rows)


def test_a_copied_row_takes_the_place_of_the_one_with_its_key_and_the_last_counts(
    store: Store,
) -> None:
    for steps in (3, 4):
        seconds = ((7, steps), (8, 1), (7, steps + 10))
        same = [(rollup(1, second, steps=number), 0) for second, number in seconds]
        with store._transaction() as connection:
            COPIED.replace(connection, "rollups", rollup_rows(1, OFFSET, same))

    with store._engine.connect() as connection:
        found = connection.execute(text("SELECT at_ns, steps FROM rollups ORDER BY at_ns"))
        assert [tuple(row) for row in found] == [(OFFSET + 7 * NS, 14), (OFFSET + 8 * NS, 1)]


def test_a_commit_with_many_rows_copies_them_and_a_later_one_replaces_them(store: Store) -> None:
    number = 3 * FEWEST_ROWS
    writer = store.writer(STREAM)
    for seq, steps in ((2, 5), (3, 6)):
        rows = {
            "rollups": tuple(rollup(1, second, steps=steps) for second in range(number)),
            "latencies": tuple(latency(1, s, "ttft", [5, steps]) for s in range(number)),
            "requests": tuple(request(owner, output_tokens=steps) for owner in range(1, number)),
        }
        writer.commit(delta(seq, **rows), SHAPE, progress(seq))

    with store._engine.connect() as connection:
        for query, answer in (
            ("SELECT COUNT(*), SUM(steps) FROM rollups", (number, 6 * number)),
            ("SELECT COUNT(*), SUM(max_ns) FROM latencies", (number, 6 * number)),
            ("SELECT COUNT(*), SUM(output_tokens) FROM requests", (number - 1, 6 * (number - 1))),
            ("SELECT COUNT(*), 0 FROM pg_class WHERE relname='new_rollups'", (1, 0)),
        ):
            assert tuple(connection.execute(text(query)).one()) == answer


def test_a_chunk_that_is_there_already_is_a_conflict_and_nothing_of_the_commit_stays(
    store: Store,
) -> None:
    writer = store.writer(STREAM)
    # Large enough to be left as they are.
    chunks = tuple(chunk(20_000 * idx, 20_000) for idx in range(FEWEST_ROWS))
    writer.commit(delta(50, chunks=chunks), SHAPE, progress(50))

    with pytest.raises(StoreConflict):
        writer.commit(delta(60, chunks=chunks, strings={1: "x"}), SHAPE, progress(60))

    assert rows_of(store, "strings") == []
    assert len(rows_of(store, "chunks")) == FEWEST_ROWS


def test_a_copy_that_the_server_ends_is_a_store_that_takes_no_writes(
    store: Store,
    postgres_url: str,  # noqa: F811
) -> None:
    rows = rollup_rows(1, OFFSET, [(rollup(1, second), 0) for second in range(500)])

    def copy_while_it_ends() -> None:
        with Store.open(postgres_url) as other, store._transaction() as mine:
            pid = mine.execute(text("SELECT pg_backend_pid()")).scalar()
            with other._engine.begin() as connection:
                connection.execute(text("SELECT pg_terminate_backend(:pid)"), {"pid": pid})
            COPIED.insert(mine, "rollups", rows)

    with pytest.raises(StoreUnwritable):
        copy_while_it_ends()

    with store._transaction() as connection:
        COPIED.insert(connection, "rollups", rows)
    assert len(rows_of(store, "rollups")) == 500
