"""Processes of the product as a user starts them, on free ports, ended with the test."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx

ROOT = Path(__file__).parents[2]


class Running:
    """One process and what it said when it was ready."""

    def __init__(self, process: subprocess.Popen[str], ready: Mapping[str, object]) -> None:
        self.process = process
        self.url = str(ready["url"])
        self.port = int(str(ready["port"]))

    def json(self, path: str) -> dict:
        """Get a JSON document from it."""
        return httpx.get(self.url + path, timeout=5).json()

    def text(self, path: str) -> str:
        """Get a text from it."""
        return httpx.get(self.url + path, timeout=5).text


def environment(home: Path) -> dict[str, str]:
    """A user of its own: nothing of the machine's state is read or written."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "XDG_STATE_HOME": str(home / "state"),
        "XDG_CACHE_HOME": str(home / "cache"),
        "XDG_RUNTIME_DIR": str(home / "run"),
        "PYTHONPATH": str(ROOT),
    }


@contextmanager
def running_agent(home: Path, *, journal: Path, store: Path, **settings: str) -> Iterator[Running]:
    """`kvpulse agent` on any free port, until the block ends; `settings` are its variables."""
    command = [sys.executable, "-m", "kvpulse", "agent", "--json", "--port", "0"]
    command += ["--journal", str(journal), "--store", str(store)]
    with (home / "agent.log").open("wb") as log:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=environment(home) | settings,
            cwd=ROOT,
        )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line, (home / "agent.log").read_text()
        yield Running(process, json.loads(line))
    finally:
        process.terminate()
        process.wait(20)
        process.stdout.close()
