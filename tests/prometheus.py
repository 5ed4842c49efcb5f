"""A real Prometheus as a plain process on a free loopback port, for tests marked `prometheus`."""

import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.waiting import wait_until


@dataclass(frozen=True)
class Series:
    """One series of an answer: its labels, and (time, value) points."""

    labels: dict[str, str]
    points: list[tuple[float, float]]

    @property
    def value(self) -> float:
        """The newest value."""
        return self.points[-1][1]


class PrometheusServer:
    """The HTTP API of one running server."""

    def __init__(self, url: str) -> None:
        self.url = url

    def at(self, expr: str, moment: float | None = None) -> list[Series]:
        """Evaluate an expression at a moment (None: now)."""
        answer = self._get("query", query=expr, **({} if moment is None else {"time": moment}))
        return [Series(r["metric"], [_point(r["value"])]) for r in answer["result"]]

    def between(self, expr: str, start: float, end: float, step: float = 1.0) -> list[Series]:
        """Evaluate an expression over a range, as a chart does."""
        answer = self._get("query_range", query=expr, start=start, end=end, step=step)
        return [Series(r["metric"], [_point(p) for p in r["values"]]) for r in answer["result"]]

    def is_ready(self) -> bool:
        """Whether it answers queries."""
        try:
            return httpx.get(f"{self.url}/-/ready", timeout=2).status_code == 200
        except httpx.HTTPError:
            return False

    def _get(self, path: str, **parameters: object) -> dict[str, list[dict]]:
        answer = httpx.get(f"{self.url}/api/v1/{path}", params=parameters, timeout=10)
        assert answer.status_code == 200, answer.text
        return answer.json()["data"]


@contextmanager
def running_prometheus(folder: Path, target: str) -> Iterator[PrometheusServer]:
    """Scrape `target` (host:port) each second until the block ends; skip where not installed."""
    binary = shutil.which("prometheus")
    if binary is None:
        pytest.skip("prometheus is not installed: apt-get install prometheus")
    config = folder / "prometheus.yml"
    config.write_text(
        "global: {scrape_interval: 1s, scrape_timeout: 1s}\n"
        f"scrape_configs: [{{job_name: kvpulse, static_configs: [{{targets: ['{target}']}}]}}]\n"
    )
    port = free_port()
    command = [
        binary,
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    server = PrometheusServer(f"http://127.0.0.1:{port}")
    try:
        wait_until(server.is_ready, timeout=30)
        yield server
    finally:
        process.terminate()
        process.wait(20)


def free_port() -> int:
    """Return a loopback port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _point(pair: list) -> tuple[float, float]:
    return float(pair[0]), float(pair[1])
