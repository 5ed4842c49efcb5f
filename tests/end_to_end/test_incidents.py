"""An engine that stalls, through the real agent: one incident, also over a kill -9 of the agent."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from kvpulse.command import main as kvpulse
from tests.end_to_end.factories_processes import ROOT, Running, running_agent
from tests.waiting import wait_until

ENGINE = "sim-a"
FAULT = "stall_admission:after_seconds=20,for_seconds=45"
SPEED = 5.0  # seconds of the engine in one of ours: an incident closes a minute after its end


@contextmanager
def stalling_engine(journal: Path) -> Iterator[None]:
    """An engine in a process of its own, for 160 of its seconds."""
    command = [sys.executable, "-m", "tests.agent.incidents.factories_watch"]
    process = subprocess.Popen(
        [*command, str(journal), FAULT, "160", str(SPEED)],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        process.kill()
        process.wait()


def metric(agent: Running, name: str, verdict: str) -> float | None:
    """Return a sample of this engine's triage; None where there is none."""
    for family in text_string_to_metric_families(agent.text("/metrics")):
        for sample in family.samples:
            if sample.name == name and sample.labels == {"engine": ENGINE, "verdict": verdict}:
                return sample.value
    return None


def is_open(agent: Running) -> float | None:
    return metric(agent, "kvpulse_incidents_open", "stalled")


def stalls(agent: Running) -> list[dict]:
    rows = agent.json("/api/incidents")["incidents"]
    return [row for row in rows if row["opened_as"] == "stalled"]


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_stall_is_one_incident_from_its_beginning_over_a_killed_agent_to_its_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journal, store = tmp_path / "journal", tmp_path / "kvpulse.db"
    places = {"journal": journal, "store": store, "KVPULSE_WATCH_SECONDS": "0.5"}

    with stalling_engine(journal):
        with running_agent(tmp_path, **places) as agent:
            wait_until(lambda: is_open(agent) is not None, timeout=30)
            assert is_open(agent) == 0
            wait_until(lambda: is_open(agent) == 1, timeout=60)
            (opened,) = stalls(agent)
            agent.process.kill()
            agent.process.wait()

        with running_agent(tmp_path, **places) as agent:
            wait_until(lambda: is_open(agent) == 1, timeout=30)
            (resumed,) = stalls(agent)
            answer = httpx.post(
                f"{agent.url}/api/incidents/{opened['id']}/acknowledgement",
                json={"by": "ada", "note": "on it"},
            )
            assert answer.status_code == 200
            code = kvpulse(["incident", "list", "--store", str(store), "--engine", ENGINE])
            assert code == 1
            assert "acknowledged by ada" in capsys.readouterr().out

            wait_until(lambda: is_open(agent) == 0, timeout=90)
            (closed,) = stalls(agent)
            assert metric(agent, "kvpulse_incidents_total", "stalled") == 1

    assert (resumed["id"], resumed["opened_ns"]) == (opened["id"], opened["opened_ns"])
    assert (closed["id"], closed["close_reason"]) == (opened["id"], "cleared")
    assert closed["acknowledgement"]["by"] == "ada"
    lasted = (closed["closed_ns"] - closed["opened_ns"]) / 1e9
    assert 5 < lasted < 60
