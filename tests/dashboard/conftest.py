"""A served dashboard, a browser, and pages driven without one."""

import json
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.browser import chromium
from tests.dashboard.fake_reads import FakeReads
from tests.waiting import wait_until


def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/_stcore/health", timeout=2) as reply:
            return reply.status == 200
    except OSError:
        return False


@contextmanager
def served(command: list[str], port: int) -> Iterator[str]:
    """Run a command that serves the dashboard on a port; yield its address."""
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=Path(__file__).parents[2]
    )
    try:
        wait_until(lambda: answers(port) or process.poll() is not None, timeout=40, interval=0.1)
        assert process.poll() is None, "the dashboard ended at once"
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(20)


# By module: while Playwright's loop runs in this thread, no other test can run one of its own.
@pytest.fixture(scope="module")
def browser():
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def fake_dashboard(browser) -> Iterator[Callable[..., str]]:
    """Serve the pages over a `FakeReads` with the given fields; each set of fields once."""
    script = str(Path(__file__).with_name("serve_fake.py"))
    running: dict[str, str] = {}
    from contextlib import ExitStack

    with ExitStack() as stack:

        def serve(**fields: object) -> str:
            text = json.dumps(fields, sort_keys=True)
            if text not in running:
                port = unused_port()
                command = [sys.executable, script, str(port), text]
                running[text] = stack.enter_context(served(command, port))
            return running[text]

        yield serve


@pytest.fixture(autouse=True)
def nothing_kept():
    """Forget the verdicts that a former test has asked for."""
    import streamlit

    streamlit.cache_data.clear()


@pytest.fixture
def app(monkeypatch, tmp_path):
    """Run the entry script with Streamlit's AppTest over a `FakeReads`, or over no store."""
    from streamlit.testing.v1 import AppTest

    import dashboard.connection

    def run(reads: FakeReads | None, page: str = "overview") -> "AppTest":
        monkeypatch.setenv("KVPULSE_STORE", str(tmp_path / "store.db"))
        if reads is not None:
            monkeypatch.setattr(dashboard.connection, "cached_reads", lambda store, made: reads)
        test = AppTest.from_function(page_script, kwargs={"page_path": page}, default_timeout=20)
        return test.run()

    return run


def page_script(page_path: str) -> None:
    """Draw one page as the entry script would; AppTest cannot reach `st.Page` of a function."""
    from dashboard.config import read_config
    from dashboard.connection import connect
    from dashboard.page import controls
    from dashboard.pages import PAGES

    data = connect(read_config())
    page = controls(data, data.engines())
    next(entry for entry in PAGES if entry.path == page_path).draw(page)
