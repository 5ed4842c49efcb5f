"""Engines that nobody follows: a death that nobody saw is found, and ends with the next run."""

import pytest
from sqlalchemy import text

from agent.incidents.board import IncidentBoard
from agent.incidents.watch import IncidentWatch
from agent.live_view import LiveView
from agent.log_limit import OncePerHour
from agent.reads.reads import open_reads
from agent.store.connection import open_for_writing, parse_address
from agent.store.store import Store
from agent.store.stream_id import StreamId
from agent.triage.incidents import Change
from tests.agent.factories_store import NS, OFFSET, SHAPE, STREAM, delta, empty_store, progress
from tests.agent.incidents.factories_incidents import store_run

DAY_NS = 86_400 * NS


@pytest.fixture
def dead(tmp_path):
    """A store whose one engine died, and its journal folder."""
    where = empty_store(tmp_path)
    store_run(where)
    engine = open_for_writing(parse_address(where))
    with engine.begin() as connection:
        connection.execute(text("UPDATE runs SET state='dead', ended_at_ns=last_event_at_ns"))
    engine.dispose()
    (tmp_path / "journal" / STREAM.engine).mkdir(parents=True)
    return where


def look(where, tmp_path, *, now_ns, journal="journal"):
    """Let an agent that has just begun look once; return what it told, and its metrics."""
    told, board = [], IncidentBoard()
    watch = IncidentWatch(
        where,
        LiveView(0),
        board,
        OncePerHour(lambda: 0.0),
        journal=tmp_path / journal,
        listeners=[told.append],
        wall_clock=lambda: now_ns,
    )
    watch.look()
    watch.close()
    return [(each.change, each.incident.verdict) for each in told], board.engines()


def rows_of(where):
    reads = open_reads(where)
    rows = reads.incidents()
    reads.close()
    return rows


def test_an_engine_that_died_while_no_agent_was_there_is_down_once(dead, tmp_path):
    told, shown = look(dead, tmp_path, now_ns=OFFSET + 60 * NS)
    again, _ = look(dead, tmp_path, now_ns=OFFSET + 120 * NS)

    assert told == [(Change.OPENED, "engine_down")]
    assert again == []
    assert shown[STREAM.engine].open == {"engine_down"}
    assert [row.is_open for row in rows_of(dead)] == [True]


def test_an_engine_of_another_machine_is_left_to_its_own_agent(dead, tmp_path):
    told, shown = look(dead, tmp_path, now_ns=OFFSET + 60 * NS, journal="elsewhere")

    assert (told, shown, rows_of(dead)) == ([], {}, [])


def test_a_down_engine_that_starts_again_is_no_longer_down(dead, tmp_path):
    look(dead, tmp_path, now_ns=OFFSET + 60 * NS)
    with Store.open(dead) as store:
        change = delta(1, t_ns=90 * NS)
        writer = store.writer(StreamId(STREAM.engine, "run-2"))
        writer.commit(change, SHAPE, progress(1, at_ns=OFFSET + 90 * NS))
        writer.release()

    told, shown = look(dead, tmp_path, now_ns=OFFSET + 120 * NS)

    (row,) = rows_of(dead)
    assert told == [(Change.CLOSED, "engine_down")]
    assert row.close_reason == "engine_restarted"
    assert row.closed_at_ns >= row.opened_at_ns
    assert shown[STREAM.engine].open == frozenset()


def test_an_engine_that_is_down_for_a_day_is_given_up_by_any_agent(dead, tmp_path):
    look(dead, tmp_path, now_ns=OFFSET + 60 * NS)

    early, _ = look(dead, tmp_path, now_ns=OFFSET + DAY_NS, journal="elsewhere")
    late, _ = look(dead, tmp_path, now_ns=OFFSET + DAY_NS + 60 * NS, journal="elsewhere")

    assert (early, late) == ([], [(Change.CLOSED, "engine_down")])
    assert rows_of(dead)[0].close_reason == "engine_gone"


def test_a_death_of_long_ago_opens_nothing(dead, tmp_path):
    told, _ = look(dead, tmp_path, now_ns=OFFSET + 2 * DAY_NS)

    assert told == []
