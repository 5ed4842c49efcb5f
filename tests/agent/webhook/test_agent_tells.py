"""`kvpulse agent` as a process: an engine that is killed is told of, signed, and counted."""

import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.agent.factories_store import empty_store
from tests.agent.test_agent_command import ROOT, AgentProcess
from tests.agent.webhook.factories_webhook import KEY, receiving
from tests.waiting import wait_until


@pytest.fixture
def killed_engine(tmp_path: Path) -> Path:
    """Kill an engine in the middle of its work; return its journal."""
    journal = tmp_path / "journal"
    writer = [sys.executable, "-m", "tests.agent.simulated_writer", str(journal), "60", "200"]
    process = subprocess.Popen(writer, cwd=ROOT, stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: list(journal.rglob("*.seg")), timeout=30)
    finally:
        process.kill()
        process.wait()
    return journal


def test_the_agent_tells_that_an_engine_is_down(
    tmp_path: Path, killed_engine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(KEY + b"\n")
    secret.chmod(0o600)
    monkeypatch.setenv("KVPULSE_WATCH_SECONDS", "0.5")
    monkeypatch.setenv("KVPULSE_GPUS", "off")
    where = ("--journal", str(killed_engine), "--store", empty_store(tmp_path), "--port", "0")
    with receiving() as receiver:
        agent = AgentProcess(
            *where, "--webhook-url", receiver.url, "--webhook-secret-file", str(secret)
        )
        url = str(agent.facts()["url"])

        wait_until(lambda: receiver.told, timeout=30)
        counted = 'kvpulse_webhook_deliveries_total{outcome="delivered"} 1.0'
        wait_until(lambda: counted in httpx.get(f"{url}/metrics").text)
        status = httpx.get(f"{url}/api/status").text
        code, errors = agent.stop()

    (told,) = receiver.told
    data = told.document["data"]
    assert told.is_authentic
    assert told.document["type"] == "incident.opened"
    assert (data["engine"], data["verdict"], data["severity"]) == (
        "sim-a",
        "engine_down",
        "critical",
    )
    assert data["incident"] == 1
    assert code == 0
    for said in (status, errors):
        assert KEY.decode() not in said
        assert "secret-path" not in said
