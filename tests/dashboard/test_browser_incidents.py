"""The page Incidents in a browser: read on a phone, acknowledged, and followed to the block map."""

import sys
import time
from dataclasses import replace

import pytest

from agent.http.app import create_app
from agent.http.server import start_http_server
from agent.incidents.desk import IncidentDesk
from agent.reads.reads import open_reads
from tests.agent.factories_live import view_of
from tests.agent.factories_store import NS
from tests.agent.incidents.factories_incidents import opened, write
from tests.dashboard.conftest import served, unused_port
from tests.dashboard.store_factory import ScriptedEngine, busy_run, store_journal

pytestmark = pytest.mark.chromium


@pytest.fixture
def store(tmp_path):
    """A minute of an engine, with an incident that opened half a minute before its end."""
    engine = ScriptedEngine(tmp_path / "journal", total=160, seconds_ago=60)
    busy_run(engine, seconds=60)
    where = str(tmp_path / "store.db")
    store_journal(tmp_path / "journal", tmp_path / "store.db")
    reads = open_reads(where)
    (row,) = reads.engines()
    reads.close()
    change = opened(opened_at_ns=row.last_event_at_ns - 30 * NS)
    write(where, row.run_key, replace(change, incident=replace(change.incident, engine="llm-0")))
    return where


@pytest.fixture
def address(store):
    desk = IncidentDesk(store)
    server = start_http_server(create_app(view_of(), incidents=desk), host="127.0.0.1", port=0)
    port = unused_port()
    command = [sys.executable, "-m", "kvpulse", "dashboard", "--store", store]
    with served([*command, "--port", str(port), "--agent", server.url], port) as where:
        yield where
    server.stop()
    desk.close()


def test_an_incident_is_read_acknowledged_and_followed_to_the_map_of_its_time(browser, address):
    page = browser.new_page(viewport={"width": 390, "height": 844}, color_scheme="dark")
    page.goto(f"{address}/incidents?incident=1")
    page.get_by_text("Open: 1").wait_for(timeout=30_000)
    main = page.locator('[data-testid="stMain"]')
    assert main.evaluate("node => node.scrollWidth <= node.clientWidth")
    page.wait_for_function(  # whatever is being drawn anew at this moment
        """[...document.querySelectorAll('.kv-verdict')].some(
            (n) => getComputedStyle(n).borderLeftColor === 'rgb(217, 119, 6)')"""
    )

    page.get_by_label("Your name").fill("Ada")
    page.get_by_label("Note").fill("on it")
    page.get_by_role("button", name="Acknowledge").click()
    page.get_by_text("by Ada at").first.wait_for(timeout=20_000)

    link = page.get_by_role("link", name="Block map when it opened")
    opened_ns = int(link.get_attribute("href").rpartition("at=")[2])
    page.goto(f"{address}/{link.get_attribute('href')}")
    told = time.strftime("%H:%M:%S", time.gmtime(opened_ns // NS))
    page.get_by_role("slider").wait_for(timeout=30_000)
    page.get_by_text(told).first.wait_for(timeout=20_000)
    page.close()
