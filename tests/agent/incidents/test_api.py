"""Incidents over the agent's HTTP API, on a real store."""

import pytest
from starlette.testclient import TestClient

from agent.http.app import create_app
from agent.incidents.desk import IncidentDesk
from tests.agent.factories_live import NOW_NS, view_of
from tests.agent.factories_store import NS, empty_store
from tests.agent.incidents.factories_incidents import AT, closed, opened, store_run, write

TOKEN = "a-token-of-the-test-0123456789abcdef"


@pytest.fixture
def path(tmp_path):
    where = empty_store(tmp_path)
    run_key = store_run(where)
    write(where, run_key, opened(), closed(AT + 60 * NS))
    write(where, run_key, opened(opened_at_ns=AT + 100 * NS))
    return where


def client_of(path, **options):
    desk = IncidentDesk(path, wall_clock=lambda: NOW_NS)
    app = create_app(view_of(), wall_clock=lambda: NOW_NS, incidents=desk, **options)
    return TestClient(app, base_url="http://127.0.0.1:9464", raise_server_exceptions=False)


@pytest.fixture
def client(path):
    return client_of(path)


def test_incidents_are_listed_and_filtered(client):
    rows = client.get("/api/incidents").json()["incidents"]

    assert [(row["id"], row["is_open"], row["close_reason"]) for row in rows] == [
        (2, True, None),
        (1, False, "cleared"),
    ]
    assert rows[0]["verdict"] == rows[0]["opened_as"] == "pool_leak"
    assert rows[0]["runbook"] == "docs/runbook.md#pool_leak"
    assert rows[0]["acknowledgement"] is None

    def ids(**asked):
        answer = client.get("/api/incidents", params=asked).json()
        return [row["id"] for row in answer["incidents"]]

    assert ids(state="open") == [2]
    assert ids(state="closed") == [1]
    assert ids(since_ns=AT + 61 * NS) == [2]
    assert ids(limit=1) == [2]
    assert ids(engine="engine-a") == [2, 1]
    assert ids(engine="engine-b") == []


def test_one_incident_comes_with_both_diagnoses(client):
    found = client.get("/api/incidents/1").json()

    assert found["opening"]["verdict"] == found["diagnosis"]["verdict"] == "pool_leak"
    leaked = next(e for e in found["diagnosis"]["evidence"] if e["name"] == "leaked_blocks")
    assert leaked["value"] == [7]


def test_an_incident_is_acknowledged_by_name_with_a_note(client):
    said = {"by": "ada", "note": "looking at it\x1b[31m"}
    answer = client.post("/api/incidents/2/acknowledgement", json=said)

    noted = {"by": "ada", "at_ns": NOW_NS, "note": "looking at it [31m"}
    assert (answer.status_code, answer.json()["acknowledgement"]) == (200, noted)
    assert client.get("/api/incidents/2").json()["acknowledgement"] == noted
    assert answer.json()["is_open"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 400),
        ({"by": ""}, 400),
        ({"by": "  "}, 400),
        ({"by": 7}, 400),
        ({"by": "x" * 101}, 400),
        ({"by": "ada", "note": "x" * 1_001}, 400),
        ({"by": "ada", "note": ["x"]}, 400),
    ],
)
def test_an_acknowledgement_that_says_nothing_usable_is_refused(client, body, status):
    answer = client.post("/api/incidents/2/acknowledgement", json=body)

    assert answer.status_code == status
    assert "accepted is" in answer.json()["error"]
    assert client.get("/api/incidents/2").json()["acknowledgement"] is None


@pytest.mark.parametrize("key", ["0", "-1", "1e3", "x", "9" * 30, "%00", "1.0"])
def test_what_is_no_number_is_refused(client, key):
    assert client.get(f"/api/incidents/{key}").status_code == 400
    answer = client.post(f"/api/incidents/{key}/acknowledgement", json={"by": "ada"})
    assert answer.status_code == 400


def test_an_incident_that_is_not_there_is_not_found(client):
    assert client.get("/api/incidents/99").status_code == 404
    answer = client.post("/api/incidents/99/acknowledgement", json={"by": "ada"})
    assert answer.status_code == 404
    assert "incident list" in answer.json()["error"]


@pytest.mark.parametrize(
    "asked",
    [
        {"state": "half"},
        {"limit": "1001"},
        {"limit": "-1"},
        {"since_ns": "soon"},
        {"since_ns": "9" * 30},
        {"engine": "x" * 257},
    ],
)
def test_a_filter_that_cannot_be_used_is_refused(client, asked):
    assert client.get("/api/incidents", params=asked).status_code == 400


def test_a_page_in_a_browser_and_a_form_may_acknowledge_nothing(client):
    where = "/api/incidents/2/acknowledgement"
    by_page = client.post(where, json={"by": "eve"}, headers={"origin": "http://127.0.0.1:9464"})
    by_form = client.post(where, data={"by": "eve"})

    assert (by_page.status_code, by_form.status_code) == (403, 415)
    assert client.get("/api/incidents/2").json()["acknowledgement"] is None


def test_the_token_is_wanted_here_too(path):
    client = client_of(path, token=TOKEN)

    assert client.get("/api/incidents").status_code == 401
    allowed = {"authorization": f"Bearer {TOKEN}"}
    assert client.get("/api/incidents", headers=allowed).status_code == 200


def test_a_store_that_is_gone_is_said(tmp_path):
    answer = client_of(str(tmp_path / "none.db")).get("/api/incidents")

    assert answer.status_code == 503
    assert "no store at" in answer.json()["error"]
