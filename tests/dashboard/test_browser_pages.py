"""What a person's browser does with the pages: no outside request, no markup, no flicker."""

import re
import sys
import time
from urllib.parse import urlsplit

import pytest

from tests.dashboard.conftest import served, unused_port
from tests.dashboard.store_factory import ScriptedEngine, busy_run, store_journal

pytestmark = pytest.mark.chromium
PATHS = ("", "incidents", "block-map", "requests", "sharing", "tenants", "baselines", "telemetry")
EVIL = '<img src="http://198.51.100.7/x.png" onerror="window.pwned=1">:red[x] ![i](http://198.51.100.7/y)'


def opened(browser, address, path="", **options):
    page = browser.new_page(**{"viewport": {"width": 1440, "height": 900}} | options)
    page.asked = []
    page.on("request", lambda request: page.asked.append(request.url))
    page.on("websocket", lambda socket: page.asked.append(socket.url))
    page.goto(f"{address}/{path}")
    page.get_by_text(re.compile("Drawn from")).first.wait_for(timeout=30_000)
    return page


def appears(locator) -> bool:
    end = time.monotonic() + 6
    while not locator.count() and time.monotonic() < end:
        locator.page.wait_for_timeout(50)
    return locator.count() > 0


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
    page.wait_for_load_state("networkidle")

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
    page.wait_for_selector(".kv-plot[data-painted]")
    chart = page.locator(".kv-plot").first
    chart.evaluate("node => { node.dataset.kept = 'yes'; }")
    plot = chart.locator(".nsewdrag").first.bounding_box()
    x, y = plot["x"] + plot["width"] * 0.4, plot["y"] + plot["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 200, y, steps=4)
    page.mouse.up()
    span = "node => node._fullLayout.xaxis.range.map((t) => +new Date(t))"
    zoomed = chart.evaluate(span)
    painted = chart.evaluate("node => Number(node.dataset.painted)")
    told = page.get_by_text(re.compile("Drawn from")).inner_text()

    page.wait_for_function(
        "told => ![...document.querySelectorAll('.kv-line')].some((n) => n.innerText === told)",
        arg=told,
        timeout=15_000,
    )
    page.wait_for_function(  # the figure of that refresh has been drawn too
        "([node, before]) => Number(node.dataset.painted) > before",
        arg=[chart.element_handle(), painted],
        timeout=15_000,
    )

    assert zoomed[1] - zoomed[0] < 600_000
    assert chart.evaluate(span) == zoomed
    assert chart.evaluate("node => node.dataset.kept") == "yes"
    assert page.locator(".kv-plot").count() == 5

    page.mouse.dblclick(x, y)

    page.wait_for_function(
        "node => node._fullLayout.xaxis.range.map((t) => +new Date(t)).reduce((a, b) => b - a)"
        " > 800_000",
        arg=chart.element_handle(),
        timeout=15_000,
    )
    page.close()


def test_no_chart_is_ever_blank_while_the_page_refreshes(browser, fake_dashboard):
    page = opened(browser, fake_dashboard(num_blocks=512), viewport={"width": 1440, "height": 1500})
    page.wait_for_function("document.querySelectorAll('.kv-plot[data-painted]').length === 5")

    frames, blank = page.evaluate("""async () => {
      let frames = 0, blank = 0;
      const end = performance.now() + 5000;  // two refreshes and a half
      while (performance.now() < end) {
        await new Promise(requestAnimationFrame);
        frames += 1;
        const charts = [...document.querySelectorAll('.kv-plot')];
        const shows = (c) => {
          const drawn = c.querySelector('.trace, .point');
          return drawn && getComputedStyle(drawn).visibility === 'visible';
        };
        blank += charts.length !== 5 || !charts.every(shows);
      }
      return [frames, blank];
    }""")

    assert frames > 20
    assert blank == 0
    page.close()


def test_charts_follow_the_width_of_the_window(browser, fake_dashboard):
    page = opened(browser, fake_dashboard(num_blocks=512))
    page.wait_for_function("document.querySelectorAll('.kv-plot[data-painted]').length === 5")

    page.set_viewport_size({"width": 420, "height": 844})

    page.wait_for_function("""[...document.querySelectorAll('.kv-plot')].every(
        (c) => c.clientWidth < 420
            && Math.abs(c.querySelector('.main-svg').clientWidth - c.clientWidth) <= 1)""")
    page.close()


def test_the_first_page_answers_under_its_name_too(browser, fake_dashboard):
    page = opened(browser, fake_dashboard(num_blocks=512), "overview")

    page.get_by_text("Peak active blocks").wait_for()

    assert page.get_by_text("Page not found").count() == 0
    page.close()


def test_the_menu_begins_where_the_content_begins_and_control_labels_stand_on_one_line(
    browser, fake_dashboard
):
    for width in (1440, 1800):
        page = opened(
            browser,
            fake_dashboard(num_blocks=512),
            "block-map",
            viewport={"width": width, "height": 900},
        )
        lefts = page.evaluate("""() => {
          const nav = document.querySelector('[data-testid="stTopNavLinkContainer"] span');
          return [nav, document.querySelector('.kv-line')].map(
            (n) => n.getBoundingClientRect().left);
        }""")
        assert abs(lefts[0] - lefts[1]) <= 2, lefts
        tops = [
            page.get_by_text(label, exact=True).first.bounding_box()["y"]
            for label in ("Engine", "Window", "Show")
        ]
        assert max(tops) - min(tops) <= 2, tops
        page.close()


def test_a_paused_page_stands_still(browser, fake_dashboard):
    page = opened(browser, fake_dashboard(num_blocks=512))
    page.get_by_text("Live", exact=True).click()
    line = page.get_by_text(re.compile("Drawn from"))

    def stands_still() -> bool:  # for longer than one refresh takes to come
        told = line.inner_text()
        page.wait_for_timeout(3500)
        return line.inner_text() == told

    assert any(stands_still() for _ in range(3))  # what was on its way may still arrive
    page.close()


def test_a_row_that_is_clicked_opens_that_request(browser, fake_dashboard):
    page = opened(browser, fake_dashboard(num_blocks=512), "requests")
    table = page.get_by_test_id("stDataFrame")
    page.wait_for_selector('[data-testid="stDataFrame"] canvas')

    def click() -> bool:  # again, should the table have been drawn anew at that very moment
        box = table.bounding_box()
        page.mouse.click(box["x"] + 17, box["y"] + 35 * 3 + 17)  # the third row: sequence 158
        return appears(page.get_by_text("Sequence 158"))

    assert any(click() for _ in range(5))

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
