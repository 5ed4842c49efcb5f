"""A full disk, a cut connection, a fault: nothing is lost and nothing counts twice."""

from pathlib import Path

import pytest
from sqlalchemy import text

from agent.agent_loop import AgentLoop
from agent.config import AgentConfig
from agent.ledger.ledger import Ledger
from agent.live_view import LiveView
from agent.reads.reads import open_reads
from agent.store.store import Store
from agent.stream_follower import Clocks
from tests.agent.factories_store import empty_store
from tests.agent.simulated_writer import record
from tests.postgres import postgres_server, postgres_url  # noqa: F401 - fixtures


def make_loop(journal: Path, store: Store, clocks: Clocks | None = None) -> AgentLoop:
    config = AgentConfig(journal=journal, store=store.address.label, commit_events=2048)
    return AgentLoop(config, store, LiveView(0), clocks=clocks)


def events_stored(where: str) -> int:
    reads = open_reads(where)
    (engine,) = reads.engines()
    reads.close()
    assert engine.audits_failed == 0
    return engine.events_stored


def test_a_full_disk_is_said_and_everything_is_stored_once_there_is_room(tmp_path: Path) -> None:
    where = empty_store(tmp_path)
    account = record(tmp_path / "journal", num_requests=40)
    with Store.open(where) as store:
        now = [0.0]
        loop = make_loop(tmp_path / "journal", store, Clocks(seconds=lambda: now[0]))
        loop.turn(scan=True)
        limit_pages(store, 10)  # below its present size: not a page more
        while loop.turn():
            pass
        assert loop.store_error is not None
        assert "disk is full" in loop.store_error
        assert events_stored(where) < account["events_emitted"]

        limit_pages(store, 1_000_000)
        now[0] += 1
        while loop.turn():
            pass

        assert loop.store_error is None
    assert events_stored(where) == account["events_emitted"]


def limit_pages(store: Store, pages: int) -> None:
    # The pool has one connection, and the limit is its own.
    with store._engine.connect() as connection:
        connection.exec_driver_sql(f"PRAGMA max_page_count={pages}")


@pytest.mark.postgres
def test_a_cut_connection_costs_no_event(tmp_path: Path, postgres_url: str) -> None:  # noqa: F811
    account = record(tmp_path / "journal", num_requests=40)
    with Store.open(postgres_url) as store, Store.open(postgres_url) as other:
        loop = make_loop(tmp_path / "journal", store)
        cuts = 0
        while loop.turn(scan=cuts == 0):
            with other._engine.begin() as connection:
                connection.execute(
                    text(
                        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                        " WHERE pid<>pg_backend_pid() AND datname=current_database()"
                    )
                )
            cuts += 1

    assert cuts > 2
    assert events_stored(postgres_url) == account["events_emitted"]


def test_a_fault_in_following_a_stream_goes_on_from_the_last_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = empty_store(tmp_path)
    account = record(tmp_path / "journal", num_requests=40)
    now = [0.0]
    takes = [0]
    take = Ledger.take

    def faulty(ledger: Ledger) -> object:
        takes[0] += 1
        if takes[0] == 3:
            raise KeyError("a bug")
        return take(ledger)

    monkeypatch.setattr(Ledger, "take", faulty)
    with Store.open(where) as store:
        loop = make_loop(tmp_path / "journal", store, Clocks(seconds=lambda: now[0]))
        while loop.turn(scan=takes[0] == 0):
            pass
        assert events_stored(where) < account["events_emitted"]

        now[0] += 61
        while loop.turn():
            pass

    assert events_stored(where) == account["events_emitted"]
