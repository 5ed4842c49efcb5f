"""`kvpulse incident`: list, show, acknowledge, bundle, and what each exits with."""

import csv
import hashlib
import io
import json
import zipfile

import pytest

from agent.commands.incident import main
from agent.errors import (
    AgentUnreachable,
    ConfigError,
    ExportInTheWay,
    IncidentNotFound,
    IncidentRefused,
)
from agent.http.app import create_app
from agent.http.server import start_http_server
from agent.incidents.desk import IncidentDesk
from agent.reads.reads import open_reads
from agent.shown_settings import shown_address
from agent.store.revision import HEAD
from kvpulse.command import main as kvpulse
from tests.agent.factories_live import view_of
from tests.agent.factories_store import empty_store

NS = 1_000_000_000
PASSWORD = "hunter2-of-the-database"


@pytest.fixture(scope="module")
def store(watched, tmp_path_factory):
    """A store with one open incident of a leak."""
    folder = tmp_path_factory.mktemp("leaking")
    with watched(folder, "leak") as (engine, _):
        engine.run_to(70)
    return str(folder / "kvpulse.db")


@pytest.fixture
def agent(store):
    server = start_http_server(
        create_app(view_of(), incidents=IncidentDesk(store)), host="127.0.0.1", port=0
    )
    yield server.url
    server.stop()


def answer(capsys, *arguments):
    code = kvpulse(["incident", *arguments])
    return code, capsys.readouterr().out


def test_the_list_exits_with_1_while_one_is_open(store, capsys):
    code, out = answer(capsys, "list", "--store", store)
    assert code == 1
    assert "pool_leak" in out
    assert "OPEN since" in out

    code, out = answer(capsys, "list", "--store", store, "--json", "--state", "closed")
    assert (code, json.loads(out)) == (1, {"incidents": []})  # none of those, but one is open


def test_a_store_without_incidents_exits_with_0(tmp_path, capsys):
    assert answer(capsys, "list", "--store", empty_store(tmp_path)) == (0, "no incidents\n")


def test_a_store_that_is_not_there_exits_with_3(tmp_path, capsys):
    assert kvpulse(["incident", "list", "--store", str(tmp_path / "none.db")]) == 3
    assert "no store at" in capsys.readouterr().err


def test_one_incident_is_shown_with_its_evidence(store, capsys):
    code, out = answer(capsys, "show", "1", "--store", store)
    assert code == 0
    assert out.startswith("incident 1: pool_leak of sim-a")
    assert "what to do  fix_code" in out

    _, out = answer(capsys, "show", "1", "--store", store, "--json")
    assert json.loads(out)["opening"]["verdict"] == "pool_leak"


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["show", "99"], IncidentNotFound),
        (["show", "last"], IncidentRefused),
        (["list", "--since", "soon"], ConfigError),
        (["bundle", "99"], IncidentNotFound),
    ],
)
def test_what_is_not_there_or_makes_no_sense_exits_with_2(store, arguments, error):
    with pytest.raises(error) as caught:
        main([*arguments, "--store", store])
    assert caught.value.exit_code == 2


def test_an_incident_is_acknowledged_through_the_agent(agent, store, capsys):
    said = ["--by", "ada", "--note", "restarting at noon"]
    code, out = answer(capsys, "ack", "1", "--agent", agent, *said)
    assert (code, out) == (0, "incident 1: acknowledged by ada\n")

    _, out = answer(capsys, "show", "1", "--store", store)
    assert "acknowledged by ada at " in out
    assert "restarting at noon" in out


def test_no_agent_exits_with_3():
    with pytest.raises(AgentUnreachable) as caught:
        main(["ack", "1", "--agent", "http://127.0.0.1:9"])
    assert caught.value.exit_code == 3


@pytest.fixture
def bundled(store, tmp_path, monkeypatch, capsys):
    """A bundle made with every kind of secret in the settings, as name to text."""
    monkeypatch.setenv("KVPULSE_STORE", store)
    monkeypatch.setenv("KVPULSE_TOKEN_FILE", f"/secret/{PASSWORD}")
    monkeypatch.setenv("KVPULSE_OTLP_ENDPOINT", f"https://u:{PASSWORD}@otel.example/v1/{PASSWORD}")
    monkeypatch.setenv("KVPULSE_WEBHOOK_URL", f"https://hooks.example/{PASSWORD}")
    monkeypatch.setenv("KVPULSE_WEBHOOK_SECRET_FILE", f"/secret/{PASSWORD}")
    path = tmp_path / "out.zip"
    code, out = answer(capsys, "bundle", "1", "--out", str(path), "--json")
    assert (code, json.loads(out)["path"]) == (0, str(path))
    assert path.stat().st_mode & 0o777 == 0o600
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name).decode() for name in archive.namelist()}


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_a_bundle_holds_what_the_store_knows_of_the_incident(bundled, store):
    reads = open_reads(store)
    stored = reads.incident(1)
    row = stored.row
    whole = reads.run(row.run_key)
    at_open = reads.block_map(row.run_key, row.opened_at_ns)
    requests = reads.requests(row.run_key, 0, whole.last_event_at_ns + NS, limit=10_000)
    span = (whole.started_at_ns, whole.last_event_at_ns + NS)
    steps = reads.series(row.run_key, ("steps",), *span, max_points=10_000)
    reads.close()

    manifest = json.loads(bundled["manifest.json"])
    for member in manifest["members"]:
        data = bundled[member["name"]].encode()
        assert (member["bytes"], member["sha256"]) == (len(data), hashlib.sha256(data).hexdigest())
    assert {member["name"] for member in manifest["members"]} == bundled.keys() - {"manifest.json"}
    assert manifest["left_out"] == {}
    assert manifest["window"]["start_ns"] == row.opened_at_ns - 600 * NS
    assert manifest["window"]["end_ns"] == row.seen_at_ns + 600 * NS

    incident = json.loads(bundled["incident.json"])
    assert incident["summary"] == stored.finding.summary
    opening = json.loads(bundled["block_map_open.json"])
    assert opening["count"] == at_open.count.tolist()
    assert opening["exact"]
    closing = json.loads(bundled["block_map_close.json"])
    leaked = next(e.value for e in stored.finding.evidence if e.name == "leaked_blocks")
    assert all(closing["count"][block] >= 1 for block in leaked)

    told = rows_of(bundled["requests.csv"])
    assert {int(each["owner"]) for each in told} == {each.owner for each in requests}
    assert {each["run_id"] for each in told} == {row.run_id}
    rollups = rows_of(bundled["rollups.csv"])
    counted = sum(int(each["steps"] or 0) for each in rollups)
    assert counted == int(steps.values["steps"].sum())
    assert {int(each["block"]) for each in rows_of(bundled["leaks.csv"])} >= set(leaked)
    config = json.loads(bundled["config.json"])
    assert config["engine_runs"][0]["total_blocks"] == 512
    assert config["agent"]["prune_seconds"] == 60.0
    assert json.loads(bundled["versions.json"])["store_revision"] == HEAD


def test_a_bundle_holds_no_secret(bundled):
    assert not any(PASSWORD in text for text in bundled.values())
    agent = json.loads(bundled["config.json"])["agent"]
    assert agent["token_file"] == "(removed)"
    assert agent["webhook_url"] == "(removed)"
    assert agent["webhook_secret_file"] == "(removed)"
    assert agent["otlp_endpoint"] == "https://otel.example"
    assert shown_address(f"postgresql://kv:{PASSWORD}@db:5432/x?y={PASSWORD}") == (
        "postgresql://db:5432"
    )


def test_a_file_that_is_there_is_kept_unless_told_otherwise(store, tmp_path, capsys):
    path = tmp_path / "there.zip"
    path.write_text("mine")

    with pytest.raises(ExportInTheWay):
        main(["bundle", "1", "--store", store, "--out", str(path)])
    assert path.read_text() == "mine"

    assert main(["bundle", "1", "--store", store, "--out", str(path), "--force"]) == 0
    assert zipfile.is_zipfile(path)
    assert [each.name for each in tmp_path.iterdir()] == ["there.zip"]
