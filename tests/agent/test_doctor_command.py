"""`kvpulse doctor`: one verdict, its exit code, and a document in every case."""

import json
import re
from pathlib import Path

import pytest

from agent.commands.doctor import main
from agent.errors import ConfigError
from agent.triage.verdicts import Verdict
from kvpulse.command import main as kvpulse
from tests.agent.factories_store import empty_store
from tests.agent.simulated_writer import record

KEYS = {"verdict", "confidence", "evidence", "action", "contributing", "window"}
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("doctor")
    record(folder / "journal", num_requests=60)
    where = empty_store(folder)
    assert kvpulse(["agent", "--once", "--journal", str(folder / "journal"), "--store", where]) == 0
    return where


def test_a_run_that_was_well_is_healthy_and_exits_with_0(recorded, capsys):
    code = kvpulse(["doctor", "--store", recorded, "--json"])

    answer = json.loads(capsys.readouterr().out)
    assert (code, answer["verdict"], answer["action"]) == (0, "healthy", "none")
    assert answer.keys() >= KEYS
    assert answer["missing"]["past"].endswith("are needed")


def test_the_text_says_verdict_and_what_to_do_with_a_link(recorded, capsys):
    kvpulse(["doctor", "--store", recorded, "--at", "-2s", "--last", "30s"])

    text = capsys.readouterr().out
    assert text.startswith("sim-a: healthy")
    assert "docs/runbook.md#healthy" in text


def test_a_store_that_is_not_there_still_gives_a_document_and_exits_with_3(tmp_path, capsys):
    code = kvpulse(["doctor", "--store", str(tmp_path / "none.db"), "--json"])

    answer = json.loads(capsys.readouterr().out)
    assert (code, answer["verdict"]) == (3, "unknown")
    assert answer.keys() >= KEYS
    assert "no store at" in answer["missing"]["source"]


def test_a_store_without_engines_is_not_called_healthy(tmp_path, capsys):
    assert kvpulse(["doctor", "--store", empty_store(tmp_path)]) == 3
    assert "no engine" in capsys.readouterr().out


def test_a_length_of_time_that_cannot_be_used_is_refused(recorded):
    with pytest.raises(ConfigError, match="such as 90s"):
        main(["--store", recorded, "--last", "soon"])


def test_every_verdict_has_its_section_in_the_runbook():
    page = (ROOT / "docs" / "runbook.md").read_text(encoding="utf-8")

    assert re.findall(r"^## (\S+)$", page, re.MULTILINE) == [verdict.value for verdict in Verdict]
