"""Markup, ANSI escapes, newlines and huge texts from a journal do no harm on any surface."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from agent.agent_loop import AgentLoop
from agent.config import AgentConfig
from agent.http.app import create_app
from agent.ledger.stated_config import read_stated_config
from agent.live_view import LiveView
from agent.reads.reads import open_reads
from agent.store.store import Store
from kvpulse.command import main as kvpulse
from tests.agent.factories_store import empty_store
from tests.agent.hostile_texts import CONTROL, PLAIN, PLAIN_MODEL, write_hostile_journal


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return write_hostile_journal(tmp_path / "journal")


@pytest.fixture
def answers(journal: Path, tmp_path: Path) -> Iterator[TestClient]:
    """What the agent answers in the middle of following it."""
    store = empty_store(tmp_path)
    with Store.open(store) as opened:
        view = LiveView(0)
        loop = AgentLoop(AgentConfig(journal=journal, store=store), opened, view)
        while loop.turn():
            pass
        yield TestClient(create_app(view), base_url="http://127.0.0.1")
        loop.close()


def test_metrics_can_be_parsed_and_hold_no_control_character(answers: TestClient) -> None:
    text = answers.get("/metrics").text

    families = {family.name: family for family in text_string_to_metric_families(text)}
    tenants = {s.labels["tenant"] for s in families["kvpulse_tenant_block_seconds"].samples}
    models = {s.labels["model_name"] for family in families.values() for s in family.samples}
    assert CONTROL.search(text) is None
    assert PLAIN in tenants
    assert models == {PLAIN_MODEL}


def test_the_status_is_json_without_control_characters(answers: TestClient) -> None:
    answer = answers.get("/api/status")

    (engine,) = answer.json()["engines"]
    assert CONTROL.search(answer.text) is None
    assert "\\u00" not in answer.text
    assert engine["fingerprint"]["model"] == PLAIN_MODEL
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("command", ["block-map", "summary", "costs", "export"])
@pytest.mark.parametrize("options", [[], ["--json"]])
def test_commands_print_no_control_character(
    journal: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    command: str,
    options: list[str],
) -> None:
    store = empty_store(tmp_path)
    assert kvpulse(["agent", "--once", "--journal", str(journal), "--store", store]) == 0
    capsys.readouterr()
    folder = ["--out", str(tmp_path / "out")] if command == "export" else []

    kvpulse([command, "--store", store, *folder, *options])

    told = capsys.readouterr()
    assert CONTROL.search(told.out + told.err + caplog.text) is None
    if command == "block-map":
        said = json.loads(told.out)["holders"][0]["tenant"] if options else told.out
        assert PLAIN in said


def test_a_request_id_of_a_megabyte_is_one_number_in_the_store(
    journal: Path, tmp_path: Path
) -> None:
    store = empty_store(tmp_path)
    kvpulse(["agent", "--once", "--journal", str(journal), "--store", store])

    reads = open_reads(store)
    (engine,) = reads.engines()
    (request,) = reads.requests(engine.run_key, 0, 2**62)
    reads.close()
    assert (request.tenant, request.physical_blocks) == (PLAIN, 2)
    assert sum(path.stat().st_size for path in tmp_path.glob("kvpulse.db*")) < 1 << 20


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ('{"a": NaN, "b": -Infinity, "c": 1.5}', {"a": None, "b": None, "c": 1.5}),
        ('{"a": {"b": 1}, "c": [1], "d": true}', {"d": True}),
        ('{"\\u001b": "\\ud800\\u0000"}', {"?": "??"}),
        ("[" * 8_000, None),
        ('{"a": ' * 1_300, None),
        ("[1]", None),
        ('{"a": "' + "x" * 9_000 + '"}', None),
        ("", None),
    ],
)
def test_what_an_engine_says_of_itself_is_taken_as_plain_values(
    text: str, read: dict[str, object] | None
) -> None:
    assert read_stated_config(text) == read
