"""`kvpulse agent` as a process: answers, stops with everything stored, says what is wrong."""

import json
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from agent.reads.reads import open_reads
from kvpulse.command import main as kvpulse
from tests.agent.factories_store import empty_store
from tests.agent.simulated_writer import record
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]


class AgentProcess:
    """A running agent; its port comes from its own first line."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "kvpulse", "agent", "--json", *arguments],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def facts(self) -> dict[str, object]:
        assert self.process.stdout is not None
        return dict(json.loads(self.process.stdout.readline()))

    def stop(self) -> tuple[int, str]:
        self.process.send_signal(signal.SIGTERM)
        _, errors = self.process.communicate(timeout=20)
        return self.process.returncode, errors


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_it_takes_the_next_free_port_answers_and_stops_with_everything_stored(
    tmp_path: Path, taken_port: int
) -> None:
    journal, store = tmp_path / "journal", empty_store(tmp_path)
    account = record(journal, num_requests=20)
    agent = AgentProcess("--journal", str(journal), "--store", store, "--port", str(taken_port))
    facts = agent.facts()
    url = str(facts["url"])

    def metrics() -> str:
        with urllib.request.urlopen(url + "/metrics") as response:
            return str(response.read().decode())

    wait_until(lambda: 'kvpulse_kv_blocks{engine="sim-a"' in metrics())
    code, errors = agent.stop()

    assert code == 0
    assert facts["port"] != taken_port
    assert f"port {taken_port} is taken" in errors
    assert "storing what was read, then stopping" in errors
    reads = open_reads(store)
    assert reads.engines()[0].events_stored == account["events_emitted"]
    reads.close()


def test_the_agent_connects_to_nobody(tmp_path: Path) -> None:
    journal, store = tmp_path / "journal", empty_store(tmp_path)
    record(journal, num_requests=5)
    agent = AgentProcess("--journal", str(journal), "--store", store, "--port", "0")
    port = agent.facts()["port"]

    sockets = psutil.Process(agent.process.pid).net_connections("all")
    agent.stop()

    internet = [each for each in sockets if each.family != socket.AF_UNIX]
    assert [(each.laddr, each.status) for each in internet] == [(("127.0.0.1", port), "LISTEN")]
    assert [each.raddr for each in sockets if each.raddr] == []


def test_an_agent_with_a_token_answers_only_who_sends_it(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("correct-horse-battery-staple\n")
    token.chmod(0o600)
    where = ("--journal", str(tmp_path / "journal"), "--store", empty_store(tmp_path))
    agent = AgentProcess(*where, "--port", "0", "--token-file", str(token))
    url = f"{agent.facts()['url']}/metrics"
    headers = {"Authorization": "Bearer correct-horse-battery-staple"}

    with pytest.raises(urllib.error.HTTPError, match="401") as refused:
        urllib.request.urlopen(url)
    refused.value.close()
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers)) as response:
        assert response.status == 200
    _, errors = agent.stop()

    assert "without a token" not in errors
    assert "correct-horse" not in errors


def test_once_stores_what_is_there_and_tells_it_as_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journal, store = tmp_path / "journal", empty_store(tmp_path)
    account = record(journal, num_requests=20)

    code = kvpulse(["agent", "--once", "--json", "--journal", str(journal), "--store", store])

    summary = json.loads(capsys.readouterr().out)
    assert code == 0
    assert summary["events_read"] == account["events_emitted"]
    (engine,) = summary["engines"]
    assert engine["state"] == "finished"
    stored = {kind: total["stored"] for kind, total in engine["per_kind"].items()}
    assert stored == account["per_kind"]


def test_a_store_folder_that_cannot_be_written_is_said_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    refusing = "/proc/kvpulse/kvpulse.db"  # not even root makes a folder there

    code = kvpulse(["agent", "--once", "--journal", str(tmp_path), "--store", refusing])

    errors = capsys.readouterr().err
    assert code == 3
    assert errors.count("\n") == 1
    assert f"cannot write the store {refusing}" in errors
    assert "choose another --store" in errors


def test_a_bad_setting_ends_with_2_before_anything_is_opened(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "kvpulse.db"

    code = kvpulse(["agent", "--once", "--store", str(store), "--port", "many"])

    assert code == 2
    assert "--port: found 'many'" in capsys.readouterr().err
    assert not store.exists()


def test_block_map_draws_what_the_agent_stored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journal, store = tmp_path / "journal", empty_store(tmp_path)
    record(journal, num_requests=20)
    kvpulse(["agent", "--once", "--journal", str(journal), "--store", store])
    capsys.readouterr()

    assert kvpulse(["block-map", "--store", store, "--at", "-1s", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert kvpulse(["block-map", "--store", store, "--at", "-1s"]) == 0
    page = capsys.readouterr().out

    assert document["exact"] is True
    assert len(document["state"]) == document["total_blocks"] == 512
    held = {block for holder in document["holders"] for block in holder["blocks"]}
    active = {block for block, state in enumerate(document["state"]) if state == 2}
    assert held == active
    assert active
    assert f"active {len(active)} of 512" in page
    assert f"sequence {document['holders'][0]['owner']}:" in page


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["--at", "noon"], 2, "--at: found 'noon'"),
        (["--engine", "other"], 2, "one of the store's engines: sim-a"),
    ],
)
def test_block_map_refuses_what_it_cannot_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, told: str
) -> None:
    journal, store = tmp_path / "journal", empty_store(tmp_path)
    record(journal, num_requests=2)
    kvpulse(["agent", "--once", "--journal", str(journal), "--store", store])

    assert kvpulse(["block-map", "--store", store, *arguments]) == code
    assert told in capsys.readouterr().err
