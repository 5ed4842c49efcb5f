"""A journal with the times of many centuries makes a bounded number of partitions."""

import pytest
from sqlalchemy import create_engine, text

from agent.errors import DaysRefused
from agent.reads.reads import open_reads
from agent.store.partitions import DAY_NS, Partition, partition_at
from agent.store.run_days import LATEST_NS, MOST_DAYS, RunDays
from agent.store.store import Store
from agent.store.stream_id import StreamId
from tests.agent.factories_agent import Agent
from tests.agent.factories_store import (
    NS,
    OFFSET,
    SHAPE,
    STREAM,
    delta,
    empty_store,
    progress,
    rollup,
)
from tests.agent.factories_stream import SECOND, ToyEngine
from tests.postgres import postgres_server, postgres_url  # noqa: F401 - fixtures

DAY = 86_400
ROWS_OF_TOO_MANY_DAYS = tuple(rollup(1, day * DAY, arrived=1) for day in range(1, MOST_DAYS + 2))


def days(first: int, number: int = 1) -> set[Partition]:
    return {partition_at("chunks", (first + n) * DAY_NS, DAY_NS) for n in range(number)}


def test_a_run_may_go_through_the_year_of_a_trace_and_no_further():
    run = RunDays("e/r", 0.0)

    run.allow(days(20_000, MOST_DAYS), 10.0)
    run.allow(days(20_000, MOST_DAYS), 20.0)

    with pytest.raises(DaysRefused, match="e/r: times in more than 400 days"):
        run.allow(days(20_000 + MOST_DAYS), 30.0)
    with pytest.raises(DaysRefused):
        run.allow(days(20_000 + MOST_DAYS), DAY - 1.0)


def test_a_run_of_years_gets_a_day_for_each_day_that_passes():
    run = RunDays("e/r", 0.0)
    for day in range(3 * MOST_DAYS):
        run.allow(days(20_000 + day), day * float(DAY))


@pytest.mark.parametrize("at_ns", [-DAY_NS * 2, LATEST_NS, (1 << 63) - 1])
def test_a_time_that_no_clock_shows_is_refused(at_ns):
    with pytest.raises(DaysRefused, match="from 1970 to 2116"):
        RunDays("e/r", 0.0).allow({partition_at("rollups_3600s", at_ns, 364 * DAY_NS)}, 0.0)


def commit_days(writer, numbers) -> None:
    for place, day in enumerate(numbers, 1):
        second = day * DAY
        row = rollup(1, second, arrived=1)
        writer.commit(delta(place, t_ns=second * NS, rollups=(row,)), SHAPE, progress(place))


@pytest.mark.postgres
def test_what_is_refused_makes_no_table_stores_nothing_and_stops_no_other_stream(
    postgres_url,  # noqa: F811
):
    with Store.open(postgres_url) as store:
        writer = store.writer(STREAM)
        commit_days(writer, [0])
        wild = delta(2, t_ns=500 * DAY * NS, rollups=ROWS_OF_TOO_MANY_DAYS)
        with pytest.raises(DaysRefused):
            writer.commit(wild, SHAPE, progress(2))
        commit_days(store.writer(StreamId("engine-b", "run-1")), [2])

    engine = create_engine(postgres_url)
    with engine.connect() as connection:
        made = connection.execute(text("SELECT COUNT(*) FROM pg_class WHERE relispartition"))
        assert made.scalar_one() < 40
        seen = connection.execute(text("SELECT at_ns FROM rollups ORDER BY 1")).scalars().all()
        assert seen == [OFFSET, OFFSET + 2 * DAY_NS]
        assert set(connection.execute(text("SELECT seq FROM positions")).scalars()) == {1}
    engine.dispose()


def test_a_store_in_one_piece_refuses_no_day(tmp_path):
    with Store.open(empty_store(tmp_path)) as store:
        rows = delta(1, t_ns=500 * DAY * NS, rollups=ROWS_OF_TOO_MANY_DAYS)
        assert store.writer(STREAM).commit(rows, SHAPE, progress(1)) == 1


@pytest.mark.postgres
def test_an_agent_says_why_it_leaves_such_a_stream_and_follows_the_others(
    tmp_path,
    postgres_url,  # noqa: F811
    monkeypatch,
):
    monkeypatch.setattr("agent.store.run_days.MOST_DAYS", 4)
    journal = tmp_path / "journal"
    for name, step_ns in (("wild", DAY_NS), ("well", SECOND)):
        toy = ToyEngine(journal, run_id=name)
        for _ in range(8):
            toy.arrive()
            toy.clock.now_ns += step_ns
            toy.pool()
        toy.recorder.close()

    agent = Agent(journal, postgres_url)
    agent.drain()
    agent.vanish()

    (problem,) = agent.loop.failures.values()
    assert problem.startswith("stream toy/wild: times in more than 4 days, which no clock does")
    reads = open_reads(postgres_url)
    stored = {run.run_id: run.events_stored for run in reads.runs("toy")}
    reads.close()
    assert stored == {"wild": 1, "well": 19}  # what came before the first wild day is kept
