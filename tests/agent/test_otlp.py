"""OTLP: a real receiver decodes what the agent pushes; a collector that is away stops nothing."""

import gzip
import importlib
import logging
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from agent.config import load_config
from agent.errors import ConfigError
from agent.live_view import LiveView
from agent.log_limit import OncePerHour
from agent.rollups.histogram import Histogram
from agent.rollups.scalars import LATENCIES
from tests.agent.factories_live import NOW_NS, SECOND, live_engine, live_state, view_of
from tests.agent.factories_store import empty_store
from tests.agent.simulated_writer import record
from tests.agent.test_agent_command import AgentProcess
from tests.waiting import wait_until

pytest.importorskip(
    "opentelemetry.exporter.otlp.proto.http", reason="no OTLP exporter: the extra `otlp` has it"
)
otlp = importlib.import_module("agent.metrics.otlp")
MS = 1_000_000
WAITS_NS = [2 * MS, 30 * MS, 3_000 * MS, 700_000 * MS]


class Collector(ThreadingHTTPServer):
    """Takes OTLP over HTTP and keeps the decoded requests."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.paths: list[str] = []
        self.status = 200
        super().__init__(("127.0.0.1", 0), Receiver)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1/metrics"


class Receiver(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        service = importlib.import_module(
            "opentelemetry.proto.collector.metrics.v1.metrics_service_pb2"
        )
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        assert self.headers["content-type"] == "application/x-protobuf"
        self.server.paths.append(self.path)
        self.server.requests.append(service.ExportMetricsServiceRequest.FromString(body))
        self.send_response(self.server.status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def collector() -> Iterator[Collector]:
    server = Collector()
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def measured() -> LiveView:
    """An engine with four first tokens and nothing else."""
    ttft = Histogram()
    ttft.add(np.array(WAITS_NS))
    histograms = {name: Histogram() for name in LATENCIES} | {"ttft": ttft}
    return view_of(live_engine(live_state(histograms=histograms)))


def push_of(endpoint: str, view: LiveView) -> Any:
    limit = OncePerHour(lambda: 0.0)
    return otlp.OtlpPush(endpoint, view, limit, wall_clock=lambda: NOW_NS)


def test_a_receiver_decodes_the_histogram_with_its_advised_edges(collector: Collector) -> None:
    assert push_of(collector.endpoint, measured()).push() is True

    (request,) = collector.requests
    (resource,) = request.resource_metrics
    (scope,) = resource.scope_metrics
    (metric,) = scope.metrics  # what has no sample is not sent
    (point,) = metric.histogram.data_points
    said = {each.key: each.value.string_value for each in point.attributes}
    assert collector.paths == ["/v1/metrics"]
    assert (metric.name, metric.unit) == ("gen_ai.server.time_to_first_token", "s")
    assert metric.histogram.aggregation_temporality == 2  # cumulative
    assert list(point.explicit_bounds) == list(otlp.EXPORTED[1].edges)
    assert len(point.bucket_counts) == len(point.explicit_bounds) + 1
    filled = {i: n for i, n in enumerate(point.bucket_counts) if n}
    assert filled == {1: 1, 4: 1, 13: 1, 16: 1}  # <= 5 ms, <= 40 ms, <= 5 s, above the last
    assert (point.count, point.sum) == (4, pytest.approx(703.032))
    assert (point.min, point.max) == (0.002, 700.0)
    assert point.start_time_unix_nano == NOW_NS - 100 * SECOND
    assert point.time_unix_nano == NOW_NS
    assert said == {
        "gen_ai.operation.name": "text_completion",
        "gen_ai.provider.name": "kvpulse",
        "gen_ai.request.model": "smollm2",
        "kvpulse.engine": "engine-0",
    }


def test_an_agent_pushes_what_it_follows(
    collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KVPULSE_OTLP_ENDPOINT", collector.endpoint)
    monkeypatch.setenv("KVPULSE_OTLP_SECONDS", "0.05")
    monkeypatch.setenv("KVPULSE_GPUS", "off")
    record(tmp_path / "journal", num_requests=20)
    where = ("--journal", str(tmp_path / "journal"), "--store", empty_store(tmp_path))
    agent = AgentProcess(*where, "--port", "0")
    url = str(agent.facts()["url"])

    wait_until(lambda: len(collector.requests) > 1)
    reason = httpx.get(f"{url}/api/status").json()["gpus"]["reason"]
    code, errors = agent.stop()

    (scope,) = collector.requests[-1].resource_metrics[0].scope_metrics
    counts = {each.name: each.histogram.data_points[0].count for each in scope.metrics}
    assert counts["gen_ai.server.time_to_first_token"] == 20
    assert reason == "nobody looks: gpus = off, or not yet"
    assert (code, "OTLP" in errors) == (0, False)


def test_all_three_names_of_the_convention_and_no_other(collector: Collector) -> None:
    some = Histogram()
    some.add(np.array([MS]))
    view = view_of(live_engine(live_state(histograms=dict.fromkeys(LATENCIES, some))))

    push_of(collector.endpoint, view).push()

    (scope,) = collector.requests[0].resource_metrics[0].scope_metrics
    assert [metric.name for metric in scope.metrics] == [
        "gen_ai.server.request.duration",
        "gen_ai.server.time_to_first_token",
        "gen_ai.server.time_per_output_token",
    ]


def test_without_an_engine_nothing_is_sent(collector: Collector) -> None:
    assert push_of(collector.endpoint, LiveView(0)).push() is True
    assert collector.requests == []


def test_a_collector_that_refuses_or_is_away_is_said_once_an_hour(
    collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    collector.status = 400
    refused = push_of(collector.endpoint, measured())
    with caplog.at_level(logging.INFO):
        assert [refused.push() for _ in range(3)] == [False] * 3
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert f"OTLP push to {collector.endpoint}: refused, or out of reach" in caplog.text

    collector.status = 200
    assert refused.push() is True  # cumulative: nothing of it was lost
    point = collector.requests[-1].resource_metrics[0].scope_metrics[0].metrics[0]
    assert point.histogram.data_points[0].count == 4


def test_without_the_extra_the_setting_is_refused_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.metric_exporter", None)

    with pytest.raises(ConfigError, match=r"pip install 'kvpulse-app\[otlp\]'"):
        push_of("http://127.0.0.1:1/v1/metrics", LiveView(0))


@pytest.mark.parametrize("text", ["collector:4318", "grpc://x/", "http://", "http://a b/", ""])
def test_an_endpoint_that_is_no_http_address_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="accepted is an http"):
        load_config({"otlp_endpoint": text}, {"HOME": "/x"})
