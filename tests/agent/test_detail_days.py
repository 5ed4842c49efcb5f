"""On Postgres detail goes by whole days, but for what is pinned, resumed from, or at the edges."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from sqlalchemy import Engine, event, text

from agent.ledger.delta import Snapshot
from agent.reads.models import RunState
from agent.store.check import check_runs
from agent.store.connection import open_for_writing, parse_address
from agent.store.detail_drop import ALL_TIME, Needed, drop_days_of_chunks, drop_days_of_maps
from agent.store.partitions import DAY_NS, partitions_in
from agent.store.pins import NO_PINS, Pins
from agent.store.prune import Pruner
from agent.store.retention import Pin
from agent.store.store import Store
from tests.agent.factories_store import NS, OFFSET, SHAPE, STREAM, chunk, delta, kinds, progress
from tests.postgres import postgres_server, postgres_url  # noqa: F401 - fixtures

pytestmark = pytest.mark.postgres

HOUR_NS = 3_600 * NS
MIDNIGHT_NS = 10 * HOUR_NS  # in engine time: the first one
DAY_0 = OFFSET + MIDNIGHT_NS
EACH_NS = 6 * HOUR_NS  # between two snapshots; each has two chunks behind it


@pytest.fixture
def engine(postgres_url: str) -> Iterator[Engine]:  # noqa: F811
    Store.open(postgres_url).close()
    engine = open_for_writing(parse_address(postgres_url))
    yield engine
    engine.dispose()


def add_stretches(where: str, number: int, *, ends: bool = False) -> int:
    """Store a stretch each six hours, an hour before the day's quarters; return the run's key.

    So the last of each day reaches an hour into the next one.
    """
    with Store.open(where) as store:
        writer = store.writer(STREAM)
        for place in range(number):
            seq, at_ns = place * 20_000, MIDNIGHT_NS + (place + 1) * EACH_NS - HOUR_NS
            told = [
                replace(
                    chunk(seq + half * 9_000, 9_000, b"detail of this hour" * 50),
                    t0_ns=at_ns + 1 + half * 5 * HOUR_NS,
                    t1_ns=at_ns + 2 + half * 5 * HOUR_NS,
                )
                for half in range(2)
            ]
            key = writer.commit(
                delta(
                    seq + 20_000,
                    t_ns=at_ns + 5 * HOUR_NS + 2,
                    chunks=tuple(told),
                    snapshot=Snapshot(seq, at_ns, place, b"map" * 99, b"state"),
                    stored=kinds(step=18_000),
                ),
                SHAPE,
                progress(seq + 20_000),
            )
        if ends:
            writer.end(RunState.FINISHED)
        else:
            writer.release()
    return key


def days(engine: Engine, table: str) -> list[int]:
    """Return the days, from the first midnight on, that a table has partitions of."""
    with engine.connect() as connection:
        parts = partitions_in(connection, table)
        return [(part.start_ns - DAY_0) // DAY_NS for part in parts]


def chunks_left(engine: Engine) -> list[int]:
    """Return the stretches, by place, that have chunks, each as often as it has."""
    with engine.connect() as connection:
        found = connection.execute(text("SELECT seq0 FROM chunks ORDER BY seq0")).scalars()
        return [seq0 // 20_000 for seq0 in found]


def books_hold(engine: Engine) -> None:
    query = text(
        "SELECT events_stored - events_pruned, num_chunks, chunk_bytes,"
        " (SELECT COALESCE(SUM(num_events), 0) FROM chunks),"
        " (SELECT COUNT(*) FROM chunks), (SELECT COALESCE(SUM(LENGTH(data)), 0) FROM chunks),"
        " (SELECT COUNT(*) FROM snapshots s WHERE detail_gone=0 AND NOT EXISTS"
        " (SELECT FROM chunks WHERE seq0>=s.seq AND seq0<s.seq+20000)) FROM runs"
    )
    with engine.connect() as connection:
        row = connection.execute(query).one()
    assert tuple(row[:3]) == tuple(row[3:6])
    assert row[6] == 0, "a snapshot says that its chunks are there"


def test_whole_days_are_dropped_and_the_edge_in_the_next_day_is_deleted(
    engine: Engine,
    postgres_url: str,  # noqa: F811
) -> None:
    add_stretches(postgres_url, 28)
    assert days(engine, "chunks") == [*range(9)]
    deleted: list[str] = []

    @event.listens_for(engine, "before_cursor_execute")
    def note(_connection: object, cursor: object, statement: str, *_: object) -> None:
        if statement.startswith("DELETE"):
            deleted.append(statement)

    gone = drop_days_of_chunks(engine, Needed(), 1)

    # The day's last stretch began at 23:00: its second chunk is of the next day.
    assert days(engine, "chunks") == [*range(1, 9)]
    assert chunks_left(engine) == [place for place in range(4, 28) for _ in range(2)]
    assert gone.rows == 8
    assert len(deleted) == 1
    books_hold(engine)


def test_a_day_with_a_pinned_stretch_stays_and_later_ones_go(
    engine: Engine,
    postgres_url: str,  # noqa: F811
) -> None:
    key = add_stretches(postgres_url, 28)
    pin = Pin(key, DAY_0 + DAY_NS + 7 * HOUR_NS, DAY_0 + DAY_NS + 8 * HOUR_NS)

    drop_days_of_chunks(engine, Needed(Pins((pin,))), ALL_TIME)

    assert days(engine, "chunks") == [1, 5, 6, 7, 8], "and the newest, which do not go whole"
    # Of the pinned day the last stretch reaches into a day that went: it is gone on both sides.
    assert chunks_left(engine) == [place for place in (4, 5, 6, *range(20, 28)) for _ in range(2)]
    books_hold(engine)


def test_another_runs_pin_and_a_pin_of_another_day_keep_nothing(
    engine: Engine,
    postgres_url: str,  # noqa: F811
) -> None:
    key = add_stretches(postgres_url, 28)
    pins = (
        Pin(key + 1, DAY_0, DAY_0 + DAY_NS),
        Pin(key, DAY_0 + 6 * DAY_NS, DAY_0 + 6 * DAY_NS + 1),
    )

    drop_days_of_chunks(engine, Needed(Pins(pins)), 1)

    assert days(engine, "chunks")[0] == 1


def test_what_does_not_end_before_the_time_stays(
    engine: Engine,
    postgres_url: str,  # noqa: F811
) -> None:
    add_stretches(postgres_url, 28)

    drop_days_of_chunks(engine, Needed(NO_PINS, DAY_0 + DAY_NS + 4 * HOUR_NS), ALL_TIME)
    assert days(engine, "chunks")[0] == 0, "its last stretch ends at 05:00 of the next day"

    drop_days_of_chunks(engine, Needed(NO_PINS, DAY_0 + DAY_NS + 6 * HOUR_NS), ALL_TIME)
    assert days(engine, "chunks")[0] == 1


def test_an_agent_resumes_from_a_run_pruned_to_the_bone(
    engine: Engine,
    postgres_url: str,  # noqa: F811
) -> None:
    key = add_stretches(postgres_url, 28)
    pruner = Pruner(parse_address(postgres_url))

    done = pruner.prune(1)

    pruner.close()
    assert sum(done.deleted.values()) > 50
    assert chunks_left(engine) == [27, 27], "what the newest snapshot needs"
    books_hold(engine)
    with Store.open(postgres_url) as store:
        stored = store.writer(STREAM).stored
    assert stored is not None
    assert stored.run_key == key
    assert stored.snapshot is not None
    assert len(stored.chunks) == 2
    with engine.connect() as connection:
        assert [f.law for f in check_runs(connection) if f.law == "losses_add_up"] == []


def test_days_of_maps_go_whole_once_their_chunks_are_gone(
    engine: Engine,
    postgres_url: str,  # noqa: F811
) -> None:
    add_stretches(postgres_url, 28, ends=True)
    drop_days_of_maps(engine, Needed(), ALL_TIME)
    assert days(engine, "snapshots")[0] == 0, "a map whose chunks are there is detail"

    drop_days_of_chunks(engine, Needed(), 1)
    gone = drop_days_of_maps(engine, Needed(), ALL_TIME)

    assert days(engine, "snapshots")[0] == 1
    assert gone.rows == 4


def test_a_day_that_somebody_reads_stays_and_loses_nothing(
    engine: Engine,
    postgres_url: str,  # noqa: F811
) -> None:
    add_stretches(postgres_url, 28)
    with engine.connect() as reader:
        reader.execute(text("SELECT COUNT(*) FROM chunks")).scalar()

        assert drop_days_of_chunks(engine, Needed(), 1).rows == 0

    assert len(chunks_left(engine)) == 56
    books_hold(engine)
