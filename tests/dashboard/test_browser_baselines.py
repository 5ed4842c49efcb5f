"""The page Baselines in a browser, over a real agent and a real store."""

import sys

import pytest

from agent.baseline_desk import BaselineDesk
from agent.http.app import create_app
from agent.http.server import start_http_server
from tests.agent.factories_live import view_of
from tests.agent.factories_recorded import HOUR, record, recorded_store
from tests.dashboard.conftest import served, unused_port
from tests.dashboard.test_browser_pages import appears

pytestmark = pytest.mark.chromium


@pytest.fixture
def address(tmp_path):
    store = tmp_path / "kvpulse.db"
    store.write_bytes(recorded_store())
    desk = BaselineDesk(str(store))
    desk.save("calm", engine=None, last_seconds=HOUR)
    record(str(store), first=2 * HOUR, seconds=4 * HOUR, seq=1, seed=2, inter_token_ns=60_000_000)
    server = start_http_server(create_app(view_of(), baselines=desk), host="127.0.0.1", port=0)
    port = unused_port()
    command = [sys.executable, "-m", "kvpulse", "dashboard", "--store", str(store)]
    with served([*command, "--port", str(port), "--agent", server.url], port) as where:
        yield where
    server.stop()
    desk.close()


def test_a_comparison_is_asked_for_read_on_a_phone_and_a_baseline_deleted(browser, address):
    page = browser.new_page(viewport={"width": 390, "height": 844})
    page.goto(f"{address}/baselines")
    page.get_by_text("Saved baselines").wait_for(timeout=30_000)

    page.get_by_role("button", name="Compare").click()

    page.get_by_text("Worse: last 4h is worse than calm").wait_for(timeout=20_000)
    main = page.locator('[data-testid="stMain"]')
    assert main.evaluate("node => node.scrollWidth <= node.clientWidth")
    row = page.locator(".kv-judged", has_text="Inter-token p50")
    scale, point = row.locator(".kv-scale").bounding_box(), row.locator(".point").bounding_box()
    assert scale["x"] + scale["width"] / 2 < point["x"] <= scale["x"] + scale["width"] + 2
    floor = row.locator(".floor").bounding_box()
    assert point["x"] > floor["x"] + floor["width"]

    choice = page.get_by_role("option", name="calm")

    def opens() -> bool:  # again, should the page have been drawn anew at that very moment
        page.get_by_label("All of").press("ArrowDown")
        return appears(choice)

    assert any(opens() for _ in range(5))
    choice.click()
    page.get_by_text("Delete …").click()
    page.get_by_role("button", name="Delete calm").click()

    page.get_by_text("calm is deleted.").wait_for(timeout=20_000)
    page.get_by_text("Nothing is saved yet").wait_for()
    page.close()
