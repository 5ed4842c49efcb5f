"""What a person's browser does with the pages: no outside request, no markup, no flicker."""

import re
import sys
from urllib.parse import urlsplit

import pytest

from tests.dashboard.conftest import served, unused_port
from tests.dashboard.store_factory import ScriptedEngine, busy_run, store_journal

pytestmark = pytest.mark.chromium
PATHS = ("", "block-map", "requests", "telemetry")
EVIL = '<img src="http://198.51.100.7/x.png" onerror="window.pwned=1">:red[x] ![i](http://198.51.100.7/y)'


def opened(browser, address, path="", **options):
    page = browser.new_page(**{"viewport": {"width": 1440, "height": 900}} | options)
    page.asked = []
    page.on("request", lambda request: page.asked.append(request.url))
    page.on("websocket", lambda socket: page.asked.append(socket.url))
    page.goto(f"{address}/{path}")
    page.get_by_text(re.compile("Drawn from")).first.wait_for(timeout=30_000)
    return page


def outside(urls):
    return [
        url
        for url in urls
        if urlsplit(url).scheme not in {"data", "blob"} and urlsplit(url).hostname != "127.0.0.1"
    ]


@pytest.mark.parametrize("path", PATHS)
def test_no_page_asks_any_host_but_its_own_nor_renders_recorded_markup(
    browser, fake_dashboard, path
):
    address = fake_dashboard(tenant=EVIL, num_blocks=256)

    page = opened(browser, address, path)
    if path == "block-map":
        page.get_by_text("tenant", exact=True).click()
        page.get_by_text("<img src=").first.wait_for()
    page.wait_for_timeout(500)

    assert len(page.asked) > 5
    assert outside(page.asked) == []
    assert page.evaluate("window.pwned") is None
    assert page.locator("img[src*='198.51']").count() == 0
    page.close()


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_fits_a_phone_in_light_and_dark(browser, fake_dashboard, path, scheme):
    address = fake_dashboard(num_blocks=512)

    page = opened(
        browser, address, path, viewport={"width": 390, "height": 844}, color_scheme=scheme
    )

    assert page.evaluate("document.scrollingElement.scrollWidth") <= 390
    main = page.locator('[data-testid="stMain"]')
    assert main.evaluate("node => node.scrollWidth <= node.clientWidth")
    background = main.evaluate("node => getComputedStyle(node.closest('.stApp')).backgroundColor")
    brightness = sum(map(int, re.findall(r"\d+", background)[:3])) / 3
    assert (brightness > 200) == (scheme == "light")
    page.close()


def test_a_refresh_keeps_the_chart_its_zoom_and_its_place(browser, fake_dashboard):
    page = opened(browser, fake_dashboard(num_blocks=512))
    page.wait_for_selector(".js-plotly-plot")
    chart = page.locator(".js-plotly-plot").first
    chart.evaluate("node => { node.dataset.kept = 'yes'; }")
    plot = chart.locator(".nsewdrag").first.bounding_box()
    x, y = plot["x"] + plot["width"] * 0.4, plot["y"] + plot["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 200, y, steps=4)
    page.mouse.up()
    span = "node => node._fullLayout.xaxis.range.map((t) => +new Date(t))"
    zoomed = chart.evaluate(span)
    told = page.get_by_text(re.compile("Drawn from")).inner_text()

    page.wait_for_function(
        "told => ![...document.querySelectorAll('.kv-line')].some((n) => n.innerText === told)",
        arg=told,
        timeout=15_000,
    )
    page.wait_for_timeout(500)

    assert zoomed[1] - zoomed[0] < 600_000
    assert chart.evaluate(span) == zoomed
    assert chart.evaluate("node => node.dataset.kept") == "yes"
    page.close()


def test_no_chart_is_ever_blank_while_the_page_refreshes(browser, fake_dashboard):
    page = opened(browser, fake_dashboard(num_blocks=512), viewport={"width": 1440, "height": 1500})
    page.wait_for_function("document.querySelectorAll('.js-plotly-plot .main-svg').length >= 10")
    page.wait_for_timeout(1500)

    frames, blank = page.evaluate("""async () => {
      let frames = 0, blank = 0;
      const end = performance.now() + 5000;  // two refreshes and a half
      while (performance.now() < end) {
        await new Promise(requestAnimationFrame);
        frames += 1;
        const charts = [...document.querySelectorAll('[data-testid="stPlotlyChart"]')];
        blank += charts.length < 5 || charts.some((c) => !c.querySelector('.trace, .point'));
      }
      return [frames, blank];
    }""")

    assert frames > 20
    assert blank == 0
    page.close()


def test_a_paused_page_stands_still(browser, fake_dashboard):
    page = opened(browser, fake_dashboard(num_blocks=512))
    page.get_by_text("Live", exact=True).click()
    page.wait_for_timeout(1000)
    line = page.get_by_text(re.compile("Drawn from"))
    told = line.inner_text()

    page.wait_for_timeout(3500)

    assert line.inner_text() == told
    page.close()


def test_a_row_that_is_clicked_opens_that_request(browser, fake_dashboard):
    page = opened(browser, fake_dashboard(num_blocks=512), "requests")
    table = page.get_by_test_id("stDataFrame")
    page.wait_for_selector('[data-testid="stDataFrame"] canvas')
    page.wait_for_timeout(500)
    box = table.bounding_box()

    page.mouse.click(box["x"] + 17, box["y"] + 35 * 3 + 17)  # the third row: sequence 158

    page.get_by_text("Sequence 158").first.wait_for()
    page.get_by_text("Waited for").wait_for()
    page.close()


def test_a_click_on_a_block_opens_its_card(browser, fake_dashboard):
    page = opened(browser, fake_dashboard(num_blocks=512), "block-map")
    canvas = page.locator("canvas[data-painted]")
    canvas.wait_for()
    box = canvas.bounding_box()

    page.mouse.click(box["x"] + 46 + 5, box["y"] + 5)

    page.get_by_text("Block 0", exact=True).last.wait_for()
    page.get_by_text("Reference count", exact=True).wait_for()
    page.close()


def test_a_page_that_waits_for_a_store_fills_itself_once_there_is_one(browser, tmp_path):
    port, store = unused_port(), tmp_path / "later" / "store.db"
    command = [sys.executable, "-m", "kvpulse", "dashboard"]
    command += ["--store", str(store), "--port", str(port)]
    with served(command, port) as address:
        page = browser.new_page()
        page.goto(address)
        page.get_by_text("No store yet").wait_for(timeout=30_000)

        engine = ScriptedEngine(tmp_path / "journal", total=64, seconds_ago=20)
        busy_run(engine, seconds=20)
        store.parent.mkdir()
        store_journal(tmp_path / "journal", store)

        page.get_by_text("Peak active blocks").wait_for(timeout=30_000)
        page.close()
