"""Signals: the agent stores what it read, says so, exits with 0, and the next one goes on."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent.reads.reads import open_reads
from kvpulse.command import main as kvpulse
from kvpulse.recorder import Recorder
from tests.agent.factories_store import empty_store
from tests.agent.test_agent_command import AgentProcess
from tests.waiting import wait_until


@contextmanager
def inherited(number: signal.Signals, handler: signal.Handlers) -> Iterator[None]:
    """Start processes with a signal's default, or ignoring it, whatever started this one."""
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


def num_stored(store: str) -> int:
    reads = open_reads(store)
    try:
        return sum(row.events_stored for row in reads.engines())
    finally:
        reads.close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_in_order_and_the_next_event_is_stored(
    tmp_path: Path, number: signal.Signals
) -> None:
    journal, store = tmp_path / "journal", empty_store(tmp_path)
    recorder = Recorder.open(journal, "good", total_blocks=8, block_size=4)
    recorder.arrive(1, 8, 4)
    with inherited(number, signal.SIG_DFL):
        agent = AgentProcess("--journal", str(journal), "--store", store, "--port", "0")
    agent.facts()
    wait_until(lambda: num_stored(store) == sum(recorder.emitted().values()))
    recorder.arrive(2, 8, 4)

    agent.process.send_signal(number)
    _, errors = agent.process.communicate(timeout=20)

    assert agent.process.returncode == 0
    assert f"{number.name}: storing what was read, then stopping" in errors
    assert num_stored(store) == sum(recorder.emitted().values())
    recorder.arrive(3, 8, 4)
    assert kvpulse(["agent", "--once", "--journal", str(journal), "--store", store]) == 0
    assert num_stored(store) == sum(recorder.emitted().values())
    recorder.close()


def test_a_hangup_that_nohup_ignores_is_ignored(tmp_path: Path) -> None:
    with inherited(signal.SIGHUP, signal.SIG_IGN):
        agent = AgentProcess(
            *("--journal", str(tmp_path / "journal")),
            *("--store", empty_store(tmp_path), "--port", "0"),
        )
    agent.facts()

    agent.process.send_signal(signal.SIGHUP)
    code, errors = agent.stop()

    assert code == 0
    assert "SIGHUP" not in errors
    assert "SIGTERM: storing" in errors
