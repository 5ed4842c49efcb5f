"""The agent's HTTP answers, as a scraper, a probe and a foreign web page get them."""

import pytest
from starlette.testclient import TestClient

from agent.http.app import create_app
from agent.ledger.delta import ClockStep
from tests.agent.factories_live import NOW_NS, SECOND, live_engine, live_state, view_of


class BrokenView:
    def snapshot(self):
        raise RuntimeError("secret detail")


def client_of(view, host="127.0.0.1:9464", **options):
    app = create_app(view, wall_clock=lambda: NOW_NS, **options)
    return TestClient(app, base_url=f"http://{host}", raise_server_exceptions=False)


@pytest.fixture
def client():
    live = live_state(gauges={"active_blocks": 40, "total_blocks": 64})
    return client_of(view_of(live_engine(live)))


def test_metrics_are_served_as_prometheus_text(client):
    answer = client.get("/metrics")

    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=")
    line = 'kvpulse_kv_blocks{engine="engine-0",model_name="smollm2",state="active"} 40.0'
    assert line in answer.text.splitlines()


def test_metrics_are_served_as_openmetrics_to_who_asks(client):
    answer = client.get("/metrics", headers={"accept": "application/openmetrics-text"})

    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert answer.text.endswith("# EOF\n")


def test_healthz_answers_although_nothing_works():
    assert client_of(BrokenView()).get("/healthz").text == "ok\n"


def test_readyz_says_200_and_nothing_wrong(client):
    answer = client.get("/readyz")

    assert answer.status_code == 200
    assert answer.json() == {"ready": True, "problems": []}


def test_readyz_says_503_and_what_is_wrong():
    view = view_of(live_engine())
    view.note_store(writable=False)

    answer = client_of(view).get("/readyz")

    assert answer.status_code == 503
    assert answer.json()["ready"] is False
    assert answer.json()["problems"][0]["subject"] == "store"


def test_status_tells_the_live_state_of_each_engine(client):
    [engine] = client.get("/api/status").json()["engines"]

    assert engine["engine"] == "engine-0"
    assert engine["fresh"] is True
    assert engine["gauges"]["active_blocks"] == 40
    assert engine["gauges"]["filled_slots"] is None


def test_status_tells_how_often_the_engines_wall_clock_was_set_and_when_last():
    step = ClockStep(90 * SECOND, -3_600 * SECOND)
    engines = (
        live_engine(live_state(num_clock_steps=2, clock_step=step), engine="set"),
        live_engine(engine="steady"),
    )

    answer = client_of(view_of(*engines)).get("/api/status")

    assert [engine["clock_steps"] for engine in answer.json()["engines"]] == [
        {"number": 2, "newest": {"at_ns": NOW_NS - 10 * SECOND, "step_seconds": -3600.0}},
        {"number": 0, "newest": None},
    ]


def test_the_root_lists_every_path(client):
    text = client.get("/").text

    for path in ("/metrics", "/healthz", "/readyz", "/api/status"):
        assert client.get(path).status_code == 200
        assert path in text


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:9464", "127.0.0.1:9464", "127.8.8.8", "[::1]:9464", "[::1]"]
)
def test_loopback_names_are_answered(client, host):
    assert client.get("/metrics", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "10.0.0.1:9464", "localhost.evil", ""]
)
@pytest.mark.parametrize("path", ["/metrics", "/api/status", "/"])
def test_other_host_names_are_refused(client, path, host):
    assert client.get(path, headers={"host": host}).status_code == 421


def test_probes_are_answered_under_any_host_name(client):
    assert client.get("/healthz", headers={"host": "10.0.0.1:9464"}).status_code == 200
    assert client.get("/readyz", headers={"host": "agent"}).status_code == 200


def test_a_listed_host_name_is_answered_in_any_case():
    client = client_of(view_of(live_engine()), allowed_hosts=["Agent"])

    assert client.get("/metrics", headers={"host": "agent:9464"}).status_code == 200
    assert client.get("/metrics", headers={"host": "agent.evil:9464"}).status_code == 421


def test_a_failure_inside_tells_nothing_about_the_inside():
    answer = client_of(BrokenView()).get("/api/status")

    assert answer.status_code == 500
    assert "secret" not in answer.text
    assert "Traceback" not in answer.text


@pytest.mark.parametrize("path", ["/", "/metrics", "/nowhere", "/healthz"])
def test_every_answer_carries_the_security_headers(client, path):
    headers = client.get(path).headers

    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert "default-src 'none'" in headers["content-security-policy"]
    assert headers["cache-control"] == "no-store"


def test_a_failure_carries_the_security_headers_too():
    assert "x-frame-options" in client_of(BrokenView()).get("/metrics").headers


def test_nothing_can_be_changed_through_it(client):
    for path in ("/metrics", "/readyz", "/api/status"):
        assert client.post(path, content=b"x" * 100).status_code == 405
