"""One transaction per commit: data and position together, exactly once, or nothing at all."""

import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import text

from agent.errors import StoreConflict, StoreUnwritable
from agent.ledger.delta import AuditResult, BrokenLaw, GapRow, LawEvidence, Leak, Named, Snapshot
from agent.reads.models import RunState
from agent.store.store import RunWriter, Store
from agent.store.stream_id import StreamId
from tests.agent.factories_store import (
    NS,
    OFFSET,
    SHAPE,
    STREAM,
    chunk,
    delta,
    empty_store,
    kinds,
    progress,
    request,
    rollup,
)
from tests.postgres import postgres_server, postgres_url  # noqa: F401 - fixtures


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return empty_store(tmp_path)
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def store(where: str) -> Iterator[Store]:
    with Store.open(where) as store:
        yield store


def rows(store: Store, query: str) -> list[tuple[object, ...]]:
    with store._engine.connect() as connection:
        return [tuple(row) for row in connection.execute(text(query))]


def test_a_commit_stores_data_and_position_and_a_new_writer_goes_on_there(store: Store) -> None:
    writer = store.writer(STREAM)
    stated = {"strings": {1: "tenant-a"}, "stored": kinds(step=5)}

    writer.commit(delta(5, chunks=(chunk(0, 5),), **stated), SHAPE, progress(5, behind=3))

    again = store.writer(STREAM).stored
    assert again is not None
    assert again.position == progress(5).position
    assert again.shape == SHAPE
    assert again.chunks == (b"events",)
    assert rows(store, "SELECT value FROM strings") == [("tenant-a",)]
    assert rows(store, "SELECT behind_records FROM positions") == [(3,)]


def test_totals_per_kind_and_run_add_up_over_commits(store: Store) -> None:
    writer = store.writer(STREAM)
    for seq in (5, 10):
        counts = {"stored": kinds(allocate=40, step=1), "lost": kinds(free=3)}
        audits = AuditResult(passed=2, failed=1)
        writer.commit(delta(seq, audits=audits, **counts), SHAPE, progress(seq))

    assert rows(store, "SELECT kind, stored, lost FROM kind_totals ORDER BY kind") == [
        (1, 80, 0),
        (3, 0, 6),
        (32, 2, 0),
    ]
    totals = "SELECT events_stored, events_lost, audits_passed, audits_failed FROM runs"
    assert rows(store, totals) == [(82, 6, 4, 2)]


def test_an_open_interval_and_a_changed_request_replace_their_rows(store: Store) -> None:
    writer = store.writer(STREAM)
    first = delta(1, rollups=(rollup(1, 7, steps=3),), requests=(request(9),))
    second = delta(
        2,
        rollups=(rollup(1, 7, steps=4, running=2),),
        requests=(request(9, state="finished", ended_ns=8 * NS, preempted_by=(3, 4)),),
    )

    writer.commit(first, SHAPE, progress(1))
    writer.commit(second, SHAPE, progress(2))

    assert rows(store, "SELECT at_ns, steps, running, waiting FROM rollups") == [
        (OFFSET + 7 * NS, 4, 2, None)
    ]
    assert rows(store, "SELECT owner, state, ended_at_ns, preempted_by FROM requests") == [
        (9, "finished", OFFSET + 8 * NS, "[3, 4]")
    ]


def test_a_second_agent_on_the_same_stream_stores_nothing(store: Store) -> None:
    store.writer(STREAM).commit(delta(5), SHAPE, progress(5))
    first, second = store.writer(STREAM), store.writer(STREAM)
    first.commit(delta(8, stored=kinds(step=3)), SHAPE, progress(8))

    with pytest.raises(StoreConflict, match=r"engine-a/run-1.*another agent"):
        second.commit(delta(7, stored=kinds(step=2)), SHAPE, progress(7))

    assert rows(store, "SELECT seq FROM positions") == [(8,)]
    assert rows(store, "SELECT stored FROM kind_totals") == [(3,)]


def test_two_agents_that_both_begin_a_stream_do_not_count_it_twice(store: Store) -> None:
    first, second = store.writer(STREAM), store.writer(STREAM)
    first.commit(delta(5, stored=kinds(step=5)), SHAPE, progress(5))

    with pytest.raises(StoreConflict):
        second.commit(delta(5, stored=kinds(step=5)), SHAPE, progress(5))

    assert rows(store, "SELECT events_stored FROM runs") == [(5,)]


def test_a_failing_row_takes_the_whole_commit_back(store: Store) -> None:
    writer = store.writer(STREAM)
    writer.commit(delta(5, chunks=(chunk(0, 5),)), SHAPE, progress(5))

    with pytest.raises(StoreConflict):  # the same chunk again
        writer.commit(delta(9, chunks=(chunk(0, 5),), stored=kinds(step=4)), SHAPE, progress(9))

    assert rows(store, "SELECT seq FROM positions") == [(5,)]
    assert rows(store, "SELECT COUNT(*) FROM kind_totals") == [(0,)]


def test_only_the_newest_snapshot_keeps_the_state_to_resume_from(store: Store) -> None:
    writer = store.writer(STREAM)
    for seq in (5, 10):
        snapshot = Snapshot(seq, seq * NS, seq, b"map%d" % seq, b"state%d" % seq)
        chunks = (chunk(seq - 5, 5, b"chunk%d" % seq),)
        writer.commit(delta(seq, chunks=chunks, snapshot=snapshot), SHAPE, progress(seq))
    writer.commit(delta(12, chunks=(chunk(10, 2, b"tail"),)), SHAPE, progress(12))

    stored = store.writer(STREAM).stored

    assert stored is not None
    assert stored.snapshot == Snapshot(10, 10 * NS, 0, b"map10", b"state10")
    assert stored.chunks == (b"tail",)
    kept = [(bytes(data), state) for data, state in _snapshots(store)]
    assert kept == [(b"map5", None), (b"map10", b"state10")]


def _snapshots(store: Store) -> list[tuple[bytes, bytes | None]]:
    found = rows(store, "SELECT map_data, state_data FROM snapshots ORDER BY seq")
    return [(bytes(a), None if b is None else bytes(b)) for a, b in found]  # type: ignore[call-overload]


def test_gaps_leaks_failures_and_configurations_are_rows(store: Store) -> None:
    writer = store.writer(STREAM)
    gap = GapRow(5, 9, 5 * NS, 9 * NS, "deleted", kinds(allocate=7, step=2))
    seen = LawEvidence("total: 64", "active + cached + free: 63", Named((7,), 1, (8, 9), 30))
    broken = BrokenLaw("states_add_up", NS, None, seen)
    stated = delta(
        9,
        gaps=(gap,),
        broken_laws=(broken,),
        leaks=(Leak(block=3, owner=8, since_ns=NS),),
        config={"engine": "a", "block_size": 16},
    )
    writer.commit(stated, SHAPE, progress(9))
    mended = replace(broken, closed_ns=4 * NS)
    later = delta(10, leaks=(Leak(3, 8, NS, 2 * NS),), broken_laws=(mended,))
    writer.commit(later, SHAPE, progress(10))

    assert rows(store, "SELECT seq0, seq1, why, lost FROM gaps") == [
        (5, 9, "deleted", '{"allocate":7,"step":2}')
    ]
    assert rows(store, "SELECT block, owner, ended_at_ns FROM leaks") == [(3, 8, OFFSET + 2 * NS)]
    assert rows(store, "SELECT * FROM broken_laws") == [
        (
            *(1, "states_add_up", OFFSET + NS, OFFSET + 4 * NS, "total: 64"),
            *("active + cached + free: 63", "[7]", 1, "[8, 9]", 30),
        )
    ]
    assert rows(store, "SELECT fingerprint, num_gaps FROM runs") == [
        ('{"block_size": 16, "engine": "a"}', 1)
    ]


def test_the_end_of_a_run_leaves_no_sequence_alive(store: Store) -> None:
    writer = store.writer(STREAM)
    ended = request(1, state="finished", ended_ns=3 * NS)
    writer.commit(delta(5, requests=(ended, request(2))), SHAPE, progress(5))

    writer.end(RunState.DEAD)

    assert rows(store, "SELECT owner, state FROM requests ORDER BY owner") == [
        (1, "finished"),
        (2, "unknown"),
    ]
    assert rows(store, "SELECT state, ended_at_ns FROM runs") == [("dead", OFFSET + 5_000_000)]


def test_streams_of_one_store_do_not_touch_each_other(store: Store) -> None:
    other = StreamId("engine-b", "run-1")
    for stream in (STREAM, other):
        store.writer(stream).commit(delta(5, stored=kinds(step=5)), SHAPE, progress(5))

    assert rows(store, "SELECT engine, events_stored FROM runs ORDER BY engine") == [
        ("engine-a", 5),
        ("engine-b", 5),
    ]


def test_a_locked_store_is_said_and_the_same_delta_can_be_stored_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.store.connection.BUSY_TIMEOUT_SECONDS", 0.05)
    with Store.open(empty_store(tmp_path)) as store:
        writer: RunWriter = store.writer(STREAM)
        blocker = sqlite3.connect(tmp_path / "kvpulse.db", isolation_level=None)
        blocker.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnwritable, match="database is locked"):
            writer.commit(delta(5, stored=kinds(step=5)), SHAPE, progress(5))
        blocker.execute("ROLLBACK")
        blocker.close()

        writer.commit(delta(5, stored=kinds(step=5)), SHAPE, progress(5))

        assert rows(store, "SELECT events_stored FROM runs") == [(5,)]


def test_a_reader_in_the_middle_of_a_query_does_not_hold_a_commit_up(tmp_path: Path) -> None:
    with Store.open(empty_store(tmp_path)) as store:
        writer = store.writer(STREAM)
        writer.commit(delta(5, stored=kinds(step=5)), SHAPE, progress(5))
        reader = sqlite3.connect(tmp_path / "kvpulse.db", isolation_level=None)
        reader.execute("BEGIN")
        before = reader.execute("SELECT events_stored FROM runs").fetchall()

        writer.commit(delta(9, stored=kinds(step=4)), SHAPE, progress(9))

        assert reader.execute("SELECT events_stored FROM runs").fetchall() == before == [(5,)]
        reader.close()
