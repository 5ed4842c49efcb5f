"""Baselines over the agent's HTTP API and from the command line, on a real store."""

import json

import pytest
from sqlalchemy import text
from starlette.testclient import TestClient

from agent.baseline_desk import WEEK_SECONDS, BaselineDesk
from agent.commands import baseline as command
from agent.errors import AgentUnreachable, RefusedByAgent
from agent.http.app import create_app
from agent.http.server import start_http_server
from agent.reads.reads import open_reads
from agent.store.connection import open_for_writing, parse_address
from tests.agent.factories_live import NOW_NS, view_of
from tests.agent.factories_recorded import HOUR, record, recorded_store
from tests.agent.factories_store import NS, OFFSET


@pytest.fixture
def path(tmp_path):
    where = tmp_path / "kvpulse.db"
    where.write_bytes(recorded_store())
    return str(where)


@pytest.fixture
def desk(path):
    desk = BaselineDesk(path, wall_clock=lambda: NOW_NS)
    yield desk
    desk.close()


def app_of(desk, **options):
    return create_app(view_of(), wall_clock=lambda: NOW_NS, baselines=desk, **options)


@pytest.fixture
def client(desk):
    return TestClient(app_of(desk), base_url="http://127.0.0.1:9464", raise_server_exceptions=False)


def save(client, name="calm", **body):
    return client.post("/api/baselines", json={"name": name, "last_seconds": HOUR, **body})


def test_a_window_is_saved_listed_shown_and_deleted(client):
    saved = save(client)

    assert saved.status_code == 201
    assert saved.json()["engine"] == "engine-a"
    assert saved.json()["end_ns"] - saved.json()["start_ns"] == HOUR * NS
    assert saved.json()["figures"]["inter_token_p50"] == pytest.approx(0.05, rel=0.02)
    assert saved.json()["fingerprint"] == {"max_batch": 16, "model": "m"}
    assert saved.json()["traffic"]["arrival_rate"] == 1.0
    listed = client.get("/api/baselines").json()["baselines"]
    assert [row["name"] for row in listed] == ["calm"]
    assert client.get("/api/baselines/calm").json() == saved.json()
    assert client.delete("/api/baselines/calm").json() == {"deleted": "calm"}
    assert client.get("/api/baselines").json() == {"baselines": []}


def test_a_baseline_outlives_the_rows_that_it_came_from(client, path):
    before = save(client).json()
    engine = open_for_writing(parse_address(path))
    with engine.begin() as connection:
        for table in ("rollups", "latencies"):
            connection.execute(text(f"DELETE FROM {table}"))
    engine.dispose()
    record(path, first=2 * HOUR, seq=1, seed=2)

    answer = client.get("/api/comparison", params={"first": "calm", "last_seconds": HOUR}).json()

    assert answer["answer"] == "same"
    assert answer["first"]["start_ns"] == before["start_ns"]
    assert client.get("/api/baselines/calm").json() == before


def test_slower_decoding_since_the_baseline_is_worse(client, path):
    save(client)
    record(path, first=2 * HOUR, seq=1, seed=2, inter_token_ns=60_000_000)

    answer = client.get("/api/comparison", params={"first": "calm", "last_seconds": HOUR}).json()

    assert answer["answer"] == "worse"
    judged = {metric["name"]: metric for metric in answer["metrics"]}
    assert judged["inter_token_p50"]["change_ratio"] == pytest.approx(0.2, abs=0.02)
    assert answer["second"]["label"] == "last 1h"


def test_a_window_is_held_against_the_same_hours_last_week(client, path):
    record(path, first=WEEK_SECONDS, seq=1, seed=2)

    answer = client.get("/api/comparison", params={"last_seconds": HOUR}).json()

    assert answer["answer"] == "same"
    assert answer["second"]["start_ns"] - answer["first"]["start_ns"] == WEEK_SECONDS * NS


def test_intervals_without_a_row_and_in_gaps_are_counted_apart(path):
    engine = open_for_writing(parse_address(path))
    with engine.begin() as connection:
        start = OFFSET + (HOUR + 600) * NS
        connection.execute(text(f"DELETE FROM rollups WHERE at_ns={start}"))
        lost = start + 100 * NS
        connection.execute(
            text(
                "INSERT INTO gaps (run_key, seq0, seq1, start_at_ns, end_at_ns, why, lost)"
                f" VALUES (1, 5, 9, {lost}, {lost + 15 * NS}, 'damaged', '{{}}')"
            )
        )
    engine.dispose()

    reads = open_reads(path)
    side = reads.newest_window(None, HOUR)
    reads.close()

    assert (side.completeness.num_not_recorded, side.completeness.num_in_gaps) == (1, 2)
    assert int(side.series.is_counted.sum()) == 357
    assert side.traffic.arrival_rate == 1.0


@pytest.mark.parametrize(
    "name", ["", "../x", "a b", "a" * 65, "<script>", "é", ".hidden", None, 7, ["a"], "a\n"]
)
def test_a_name_that_is_none_is_refused(client, name):
    answer = save(client, name)

    assert answer.status_code == 400
    assert "accepted is" in answer.json()["error"]
    assert len(answer.text) < 400


@pytest.mark.parametrize("seconds", [0, -1, "x", 1e300, [], 8 * 86_400, 3])
def test_a_window_that_cannot_be_is_refused(client, seconds):
    assert save(client, last_seconds=seconds).status_code == 400


def test_a_window_that_ended_before_now_is_saved_as_it_was(client):
    newest = save(client).json()
    end_ns = newest["end_ns"] - HOUR // 2 * NS

    saved = save(client, name="before", last_seconds=600, end_ns=end_ns)

    assert saved.status_code == 201
    assert saved.json()["end_ns"] == end_ns
    assert saved.json()["start_ns"] == end_ns - 600 * NS
    assert saved.json()["completeness"]["num_not_recorded"] == 0


@pytest.mark.parametrize(
    ("end_ns", "why"),
    [
        (2**62, "choose an end before that"),
        ("yesterday", "accepted are whole nanoseconds"),
        (True, "accepted are whole nanoseconds"),
        (1.5e18, "accepted are whole nanoseconds"),
        (HOUR * NS, "nothing was recorded in that window"),
    ],
)
def test_a_window_that_ends_where_nothing_is_recorded_is_refused(client, end_ns, why):
    answer = save(client, end_ns=end_ns)

    assert answer.status_code == 400
    assert why in answer.json()["error"]


def test_a_name_that_is_taken_is_never_overwritten(client):
    first = save(client).json()

    assert save(client, last_seconds=1800).status_code == 409
    assert client.get("/api/baselines/calm").json() == first


def test_what_is_not_there_is_said(client):
    assert client.get("/api/baselines/none").status_code == 404
    assert client.delete("/api/baselines/none").status_code == 404
    assert client.get("/api/comparison", params={"first": "none"}).status_code == 404
    refused = save(client, engine="engine-b")
    assert refused.status_code == 400
    assert "engine-a" in refused.json()["error"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"content-type": "text/plain"}, 415),
        ({"content-type": "application/json", "origin": "http://evil.example"}, 403),
        ({"content-type": "application/json", "host": "evil.example"}, 421),
    ],
)
def test_a_page_in_a_browser_can_save_and_delete_nothing(client, headers, status):
    save(client)
    body = json.dumps({"name": "theirs", "last_seconds": HOUR})

    assert client.post("/api/baselines", content=body, headers=headers).status_code == status
    if status != 415:
        assert client.delete("/api/baselines/calm", headers=headers).status_code == status
    assert [r["name"] for r in client.get("/api/baselines").json()["baselines"]] == ["calm"]


def test_a_body_is_bounded_also_where_it_states_no_length(client):
    def endless():
        for _ in range(100):
            yield b" " * 10_000

    headers = {"content-type": "application/json"}
    answer = client.post("/api/baselines", content=endless(), headers=headers)

    assert answer.status_code == 413


@pytest.mark.parametrize("body", ["", "[]", "{", '{"name": ' + "[" * 50_000])
def test_a_body_that_is_no_object_is_refused(client, body):
    headers = {"content-type": "application/json"}

    assert client.post("/api/baselines", content=body, headers=headers).status_code == 400


def test_the_token_is_wanted_here_too(desk):
    app = app_of(desk, token="t" * 20)
    client = TestClient(app, base_url="http://127.0.0.1:9464")

    assert client.get("/api/baselines").status_code == 401
    assert save(client).status_code == 401


def test_a_series_damaged_in_the_store_is_said_and_not_believed(client, path):
    save(client)
    engine = open_for_writing(parse_address(path))
    with engine.begin() as connection:
        connection.execute(text("UPDATE baselines SET series = substr(series, 1, 200)"))
    engine.dispose()

    answer = client.get("/api/comparison", params={"first": "calm"})

    assert answer.status_code == 500
    assert "cannot be read" in answer.json()["error"]


@pytest.fixture
def agent(desk, monkeypatch):
    server = start_http_server(app_of(desk), host="127.0.0.1", port=0)
    monkeypatch.setenv("KVPULSE_AGENT", server.url)
    yield server
    server.stop()


def test_the_command_saves_lists_and_compares(agent, path, capsys):
    assert command.main(["save", "calm", "--last", "1h"]) == 0
    assert command.main(["list"]) == 0
    assert "calm" in capsys.readouterr().out
    assert command.main(["compare", "calm", "--last", "1h"]) == 0
    assert capsys.readouterr().out.startswith("SAME: no change found between calm and last 1h")

    record(path, first=2 * HOUR, seq=1, seed=2, inter_token_ns=60_000_000)

    assert command.main(["compare", "calm", "--last", "1h", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["answer"] == "worse"
    assert command.main(["compare", "calm", "--last", "30s"]) == 4
    said = capsys.readouterr().out
    assert said.startswith("UNKNOWN")
    assert "samples on one side" in said
    assert command.main(["delete", "calm"]) == 0


def test_the_command_says_who_does_not_answer_and_who_says_no(agent):
    with pytest.raises(RefusedByAgent, match="accepted is") as refused:
        command.main(["save", "no name"])
    assert refused.value.exit_code == 2
    with pytest.raises(AgentUnreachable, match="kvpulse agent") as unreachable:
        command.main(["list", "--agent", "http://127.0.0.1:1"])
    assert unreachable.value.exit_code == 3
