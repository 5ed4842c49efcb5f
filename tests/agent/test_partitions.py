"""Postgres keeps what retention takes in partitions by time: made ahead, dropped whole."""

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import Engine, text

from agent.agent_loop import AgentLoop
from agent.config import AgentConfig
from agent.live_view import LiveView
from agent.reads.reads import open_reads
from agent.store.check import check_runs
from agent.store.connection import open_for_writing, parse_address
from agent.store.partition_drop import drop_empty, drop_intervals
from agent.store.partitions import DAY_NS, TIME_COLUMNS, partition_at, partitions_in
from agent.store.prune import Pruner
from agent.store.revision import migrate
from agent.store.store import Store
from agent.store.stream_id import StreamId
from tests.agent.factories_store import (
    NS,
    OFFSET,
    SHAPE,
    STREAM,
    chunk,
    delta,
    latency,
    progress,
    rollup,
)
from tests.agent.simulated_writer import record
from tests.agent.test_reader_role import make_reader
from tests.postgres import postgres_server, postgres_url  # noqa: F401 - fixtures

pytestmark = pytest.mark.postgres

DAY = 86_400


@pytest.fixture
def engine(postgres_url: str) -> Iterator[Engine]:  # noqa: F811
    Store.open(postgres_url).close()
    engine = open_for_writing(parse_address(postgres_url))
    yield engine
    engine.dispose()


def add_days(where: str, *days: int, stream: StreamId = STREAM) -> int:
    """Store a few seconds of each of some days; return the run's key."""
    with Store.open(where) as store:
        writer = store.writer(stream)
        for number, day in enumerate(days, 1):
            second = day * DAY
            key = writer.commit(
                delta(
                    number,
                    t_ns=second * NS,
                    rollups=tuple(
                        rollup(tier, second + place * tier, arrived=place)
                        for tier in (1, 60)
                        for place in range(5)
                    ),
                    latencies=(latency(1, second, "ttft", [5, 7]),),
                ),
                SHAPE,
                progress(number),
            )
        writer.release()
    return key


def starts(engine: Engine, parent: str) -> list[int]:
    """Return the days, from engine time 0 on, at which a table's partitions begin."""
    first = OFFSET // DAY_NS
    with engine.connect() as connection:
        return [part.start_ns // DAY_NS - first for part in partitions_in(connection, parent)]


def rows_of(engine: Engine, query: str) -> list[tuple[object, ...]]:
    with engine.connect() as connection:
        return [tuple(row) for row in connection.execute(text(query))]


def test_a_time_falls_into_the_partition_named_by_its_day() -> None:
    part = partition_at("chunks", 1_790_000_000 * NS, DAY_NS)

    assert part.name == "chunks_20260921"
    assert part.start_ns <= 1_790_000_000 * NS < part.end_ns == part.next.start_ns
    assert partition_at("chunks", -1, DAY_NS).name == "chunks_19691231"


def test_a_commit_makes_the_partitions_of_its_rows_and_the_ones_behind(
    engine: Engine,
    postgres_url: str,  # noqa: F811
) -> None:
    add_days(postgres_url, 0, 3)

    assert starts(engine, "rollups_1s") == [0, 1, 3, 4]
    assert starts(engine, "latencies_1s") == [0, 1, 3, 4]
    assert rows_of(engine, "SELECT COUNT(*) FROM rollups") == [(20,)]


def test_making_a_partition_waits_for_no_reader_and_keeps_none_waiting(
    engine: Engine,
    postgres_url: str,  # noqa: F811
) -> None:
    add_days(postgres_url, 0)
    reads = open_reads(postgres_url)
    with engine.connect() as reader:
        reader.execute(text("SELECT COUNT(*) FROM rollups")).scalar()

        add_days(postgres_url, 7, stream=StreamId("engine-b", "run-1"))

    assert 7 in starts(engine, "rollups_1s")
    reads.close()


def test_a_commit_whose_partition_was_dropped_meanwhile_is_stored_all_the_same(
    engine: Engine,
    postgres_url: str,  # noqa: F811
) -> None:
    with Store.open(postgres_url) as store:
        writer = store.writer(STREAM)
        row = rollup(1, 0, arrived=1)
        writer.commit(delta(1, rollups=(row,)), SHAPE, progress(1))
        assert drop_intervals(engine, 1, OFFSET + 9 * DAY_NS) == 1
        assert starts(engine, "rollups_1s") == []

        later = rollup(1, 1, arrived=2)
        writer.commit(delta(2, rollups=(later,)), SHAPE, progress(2))

    assert starts(engine, "rollups_1s") == [0, 1]
    assert rows_of(engine, "SELECT MAX(arrived), COUNT(*) FROM rollups") == [(2, 2)]


def test_a_question_about_a_day_looks_into_that_days_partition_only(
    engine: Engine,
    postgres_url: str,  # noqa: F811
) -> None:
    key = add_days(postgres_url, *range(6))
    begin = OFFSET + 2 * DAY_NS
    plan = rows_of(
        engine,
        "EXPLAIN SELECT at_ns, arrived FROM rollups"
        f" WHERE run_key={key} AND tier_seconds=1 AND at_ns>={begin} AND at_ns<{begin + NS * 5}",
    )

    looked_into = {name for (line,) in plan for name in str(line).split() if "rollups_" in name}
    (part,) = {partition_at("rollups_1s", begin, DAY_NS).name}
    assert part in looked_into
    assert not {name for name in looked_into if part not in name}
    reads = open_reads(postgres_url)
    found = reads.series(key, ["arrived"], begin, begin + 5 * NS)
    reads.close()
    assert found.values["arrived"].tolist() == [0, 1, 2, 3, 4]


def test_retention_drops_days_that_are_outside_for_all_streams(
    engine: Engine,
    postgres_url: str,  # noqa: F811
) -> None:
    add_days(postgres_url, *range(9))
    add_days(postgres_url, *range(3, 9), stream=StreamId("engine-b", "run-1"))
    size = rows_of(engine, "SELECT pg_database_size(current_database())")[0][0]
    pruner = Pruner(parse_address(postgres_url))

    pruner.prune(8_000)

    pruner.close()
    left = starts(engine, "rollups_1s")
    assert left == starts(engine, "latencies_1s") == [left[0], *range(left[0] + 1, 10)]
    assert 3 < left[0] < 9
    (oldest,) = rows_of(engine, "SELECT MIN(at_ns) FROM rollups WHERE tier_seconds=1")
    # The day before the newest event's may be empty and there.
    assert (oldest[0] - OFFSET) // DAY_NS - left[0] in (0, 1)
    assert rows_of(engine, "SELECT pg_database_size(current_database())")[0][0] < size


def test_a_day_that_somebody_reads_stays_and_no_reader_waits_long(
    engine: Engine,
    postgres_url: str,  # noqa: F811
) -> None:
    add_days(postgres_url, 0, 1)
    with engine.connect() as reader:
        reader.execute(text("SELECT COUNT(*) FROM rollups")).scalar()
        began = time.monotonic()

        assert drop_intervals(engine, 1, OFFSET + 9 * DAY_NS) == 0

        assert time.monotonic() - began < 5
    assert rows_of(engine, "SELECT COUNT(*) FROM rollups WHERE tier_seconds=1") == [(10,)]
    assert drop_intervals(engine, 1, OFFSET + 9 * DAY_NS) == 10


def test_partitions_of_bygone_days_that_hold_nothing_are_dropped(
    engine: Engine,
    postgres_url: str,  # noqa: F811
) -> None:
    add_days(postgres_url, 0, 4)
    with engine.begin() as connection:
        connection.execute(text(f"DELETE FROM rollups WHERE at_ns<{OFFSET + DAY_NS}"))

    drop_empty(engine)

    assert starts(engine, "rollups_1s") == [4, 5]
    assert starts(engine, "latencies_1s") == [0, 4, 5]


def test_a_stores_rows_survive_the_way_down_and_up(
    engine: Engine,
    tmp_path: Path,
    postgres_url: str,  # noqa: F811
) -> None:
    record(tmp_path / "journal", num_requests=30)
    config = AgentConfig(journal=tmp_path / "journal", store=postgres_url, commit_events=2048)
    with Store.open(postgres_url) as store:
        AgentLoop(config, store, LiveView(0)).drain(threading.Event())
    queries = [f"SELECT md5(t::text) FROM {table} t ORDER BY 1" for table in TIME_COLUMNS]
    before = [rows_of(engine, query) for query in queries]
    assert all(before)

    with engine.begin() as connection:
        migrate(connection, "0004")
    assert [rows_of(engine, query) for query in queries] == before
    assert rows_of(engine, "SELECT COUNT(*) FROM pg_class WHERE relispartition") == [(0,)]
    with engine.begin() as connection:
        migrate(connection, "0005")

    assert [rows_of(engine, query) for query in queries] == before
    with engine.connect() as connection:
        assert list(check_runs(connection)) == []
    storage = "SELECT DISTINCT attstorage FROM pg_attribute a JOIN pg_class c ON c.oid=attrelid"
    stored = rows_of(engine, f"{storage} WHERE attname='data' AND relname LIKE 'chunks%'")
    assert stored in ([("e",)], [(b"e",)])


def test_the_role_that_reads_sees_partitions_made_after_it(
    engine: Engine,
    postgres_url: str,  # noqa: F811
) -> None:
    reader = make_reader(postgres_url)
    key = add_days(postgres_url, 0, 5)

    with psycopg.connect(reader.replace("+psycopg", "")) as connection:
        found = connection.execute("SELECT COUNT(*) FROM rollups").fetchone()
    reads = open_reads(reader)
    begin = OFFSET + 5 * DAY_NS
    assert len(reads.series(key, ["arrived"], begin, begin + 5 * NS).t_ns) > 0
    reads.close()
    assert found == (20,)


def test_chunks_joined_in_a_later_commit_take_the_place_of_the_small_ones(
    engine: Engine,
    postgres_url: str,  # noqa: F811
) -> None:
    with Store.open(postgres_url) as store:
        writer = store.writer(STREAM)
        big = [replace(chunk(n * 9000, 9000), num_events=9000) for n in range(2)]
        writer.commit(delta(9000, chunks=(big[0],)), SHAPE, progress(9000))
        writer.commit(delta(18000, chunks=(big[1],)), SHAPE, progress(18000))

    assert rows_of(engine, "SELECT seq0 FROM chunks ORDER BY seq0") == [(0,), (9000,)]
    assert starts(engine, "chunks") == [0, 1]
