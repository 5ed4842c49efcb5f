"""The agent's loop in this process: follows, recovers, ends runs, and never counts twice."""

import logging
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.agent_loop import AgentLoop
from agent.config import AgentConfig
from agent.live_view import LiveView
from agent.reads.models import RunState
from agent.reads.reads import Reads, open_reads
from agent.store.store import Store
from agent.stream_follower import Clocks
from kvpulse.recorder import Recorder
from tests.agent.factories_store import empty_store
from tests.agent.simulated_writer import record

ROOT = Path(__file__).parents[2]


class Agent:
    """A loop over a journal and a store, and what it shows."""

    def __init__(
        self, journal: Path, store: str, clocks: Clocks | None = None, **settings: object
    ) -> None:
        self.config = AgentConfig(journal=journal, store=store, **settings)  # type: ignore[arg-type]
        self.store = Store.open(store)
        self.view = LiveView(0)
        self.loop = AgentLoop(self.config, self.store, self.view, clocks=clocks)

    def drain(self) -> None:
        self.loop.drain(threading.Event())

    def close(self) -> None:
        self.loop.close()
        self.store.close()


@pytest.fixture
def where(tmp_path: Path) -> str:
    return empty_store(tmp_path)


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "journal"


@pytest.fixture
def agent(journal: Path, where: str) -> Iterator[Agent]:
    agent = Agent(journal, where, commit_events=4096)
    yield agent
    agent.close()


@pytest.fixture
def reads(where: str) -> Iterator[Reads]:
    opened = open_reads(where)
    yield opened
    opened.close()


def open_recorder(journal: Path, run_id: str, engine: str = "hand-made") -> Recorder:
    recorder = Recorder.open(
        journal, engine, total_blocks=16, block_size=4, run_id=run_id, segment_bytes=1 << 20
    )
    recorder.config({"engine": engine, "model": "none", "block_size": 4})
    return recorder


def test_a_finished_run_is_stored_whole_and_marked(
    agent: Agent, journal: Path, reads: Reads
) -> None:
    account = record(journal, num_requests=40)

    agent.drain()

    (engine,) = reads.engines()
    assert engine.state is RunState.FINISHED
    assert engine.events_stored == account["events_emitted"]
    assert (engine.events_lost, engine.audits_failed) == (0, 0)
    assert engine.fingerprint["runner"] == "simulated"
    assert agent.view.snapshot().engines["sim-a"].state is RunState.FINISHED
    assert reads.leaks(engine.run_key) == []
    assert len(reads.requests(engine.run_key, 0, 2**62, limit=1000)) == 40


def test_draining_again_reads_nothing_twice(agent: Agent, journal: Path, where: str) -> None:
    record(journal, num_requests=20)
    agent.drain()

    again = Agent(journal, where)
    again.drain()

    assert (agent.loop.num_events > 1000, again.loop.num_events) == (True, 0)
    again.close()


def test_a_live_run_is_followed_and_shown(agent: Agent, journal: Path, reads: Reads) -> None:
    recorder = open_recorder(journal, "r1")
    recorder.arrive(1, 8, 4)
    recorder.admit(1)
    recorder.allocate(1, [3, 4])
    recorder.heartbeat(0, 1, 0)

    while agent.loop.turn(scan=True):
        pass

    live = agent.view.snapshot().engines["hand-made"]
    assert live.state is RunState.LIVE
    assert live.live.gauges["active_blocks"] == 2
    assert live.lag_seconds is not None
    assert live.lag_seconds < 5
    (engine,) = reads.engines()
    assert (engine.state, engine.active_blocks, engine.running) == (RunState.LIVE, 2, 1)
    blocks = reads.block_map(engine.run_key)
    assert blocks is not None
    assert blocks.blocks_of(1) == [3, 4]
    recorder.close()


def test_a_restarted_engine_takes_over_and_its_former_run_ends(
    agent: Agent, journal: Path, reads: Reads
) -> None:
    first = open_recorder(journal, "r1")
    first.heartbeat(0, 0, 0)
    agent.loop.turn(scan=True)
    first.close()
    second = open_recorder(journal, "r2")
    second.heartbeat(0, 0, 0)

    for _ in range(4):
        agent.loop.turn(scan=True)

    assert [run.run_id for run in reads.runs("hand-made")] == ["r2", "r1"]
    assert [run.state for run in reads.runs("hand-made")] == [RunState.LIVE, RunState.FINISHED]
    assert agent.view.snapshot().engines["hand-made"].run_id == "r2"
    assert reads.engines()[0].run_id == "r2"
    second.close()


def test_a_writer_that_was_killed_leaves_a_dead_run_and_no_live_sequences(
    agent: Agent, journal: Path, reads: Reads
) -> None:
    script = (
        "import os, pathlib, signal, sys; from kvpulse.recorder import Recorder;"
        "r = Recorder.open(pathlib.Path(sys.argv[1]), 'doomed', total_blocks=8, block_size=4);"
        "r.arrive(1, 8, 4); r.admit(1); r.allocate(1, [0, 1]); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", script, str(journal)], cwd=ROOT, check=False)

    agent.drain()

    (engine,) = reads.engines()
    assert engine.state is RunState.DEAD
    assert engine.ended_at_ns == engine.last_event_at_ns
    (request,) = reads.requests(engine.run_key, 0, 2**62)
    assert request.state.value == "unknown"


def test_a_locked_store_is_waited_for_and_nothing_is_missing_afterwards(
    journal: Path, where: str, reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.store.connection.BUSY_TIMEOUT_SECONDS", 0.02)
    account = record(journal, num_requests=20)
    agent = Agent(journal, where, commit_events=1024)
    agent.loop.turn(scan=True)
    blocker = sqlite3.connect(where, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")

    assert agent.loop.turn() is False
    assert agent.loop.turn() is False
    snapshot = agent.view.snapshot()
    assert snapshot.store_writable is False
    assert "database is locked" in snapshot.errors[0].text
    blocker.execute("ROLLBACK")
    blocker.close()
    agent.drain()

    assert reads.engines()[0].events_stored == account["events_emitted"]
    assert agent.view.snapshot().errors == ()
    assert agent.view.snapshot().store_writable is True
    agent.close()


def test_a_stream_that_cannot_be_read_does_not_stop_the_others(
    agent: Agent, journal: Path, reads: Reads, caplog: pytest.LogCaptureFixture
) -> None:
    record(journal, num_requests=10)
    foreign = journal / "foreign" / "run"
    foreign.mkdir(parents=True)
    (foreign / "00000000.seg").write_bytes(b"something else entirely" * 1000)

    with caplog.at_level(logging.ERROR):
        agent.drain()

    assert [row.engine for row in reads.engines()] == ["sim-a"]
    assert "no longer following foreign/run" in caplog.text
    assert [error.subject for error in agent.view.snapshot().errors] == ["foreign/run"]
