"""The map of 16,384 blocks in a real browser, over a store that the agent's own parts wrote."""

import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from agent.block_map import BlockMap
from agent.reads.reads import open_reads
from kvpulse.events import BlockState
from tests.dashboard.conftest import served, unused_port
from tests.dashboard.store_factory import ScriptedEngine, store_journal

pytestmark = pytest.mark.chromium
TOTAL = 16_384
COLOURS = {
    BlockState.FREE: (0x94, 0xA3, 0xB8),
    BlockState.CACHED: (0xD9, 0x77, 0x06),
    BlockState.ACTIVE: (0x25, 0x63, 0xEB),
}
LEAKED = (0xDC, 0x26, 0x26)
FIND = """
  const find = (root) => {
    for (const node of root.querySelectorAll('*')) {
      if (node.tagName === 'CANVAS' && node.dataset.painted) return node;
      if (node.shadowRoot) { const inner = find(node.shadowRoot); if (inner) return inner; }
    }
    return null;
  };
"""
CELL = """([block]) => {@FIND@  const map = find(document);
  const pitch = Number(map.dataset.pitch), columns = Number(map.dataset.columns);
  const gutter = Number(map.dataset.gutter), scale = window.devicePixelRatio || 1;
  const x = gutter + (block % columns) * pitch, y = Math.floor(block / columns) * pitch;
  const at = (v) => Math.floor((v + pitch / 2 - 1) * scale);
  return Array.from(map.getContext('2d').getImageData(at(x), at(y), 1, 1).data.slice(0, 3));
}""".replace("@FIND@", FIND)
# From the click on a colouring to the frame after the canvas was painted with its classes.
CLICK = """async ([label, expected]) => {
@FIND@  const frame = () => new Promise((done) => requestAnimationFrame(done));
  const button = [...document.querySelectorAll('[data-testid="stButtonGroup"] button')]
    .find((node) => node.innerText.trim() === label);
  const start = performance.now();
  button.click();
  for (;;) {
    await frame();
    const map = find(document);
    if (map && map.dataset.classes.includes(expected)) break;
    if (performance.now() - start > 15000) throw new Error('not painted: ' + label);
  }
  await frame();
  return performance.now() - start;
}""".replace("@FIND@", FIND)
COLOURINGS = (
    ("count", "count 1"),
    ("state", "leaked"),
    ("tenant", "search"),
    ("age", "under 1 s"),
    ("state", "leaked"),
)


@dataclass
class Served:
    """A served map and what the store says of it."""

    address: str
    truth: BlockMap
    leaked: list[int]


@pytest.fixture(scope="module")
def large_map(tmp_path_factory, browser) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("large")
    engine = ScriptedEngine(folder / "journal", total=TOTAL, seconds_ago=30)
    fill(engine)
    store = folder / "store.db"
    store_journal(folder / "journal", store)
    reads = open_reads(str(store))
    run_key = reads.engines()[0].run_key
    truth = reads.block_map(run_key)
    leaked = sorted(leak.block for leak in reads.leaks(run_key))
    reads.close()
    assert truth is not None
    assert (truth.state == engine.state).all()
    assert leaked == sorted(engine.leaked) != []
    port = unused_port()
    command = [sys.executable, "-m", "kvpulse", "dashboard"]
    command += ["--store", str(store), "--port", str(port)]
    with served(command, port) as address:
        yield Served(address, truth, leaked)


def fill(engine: ScriptedEngine) -> None:
    """Reach every state: free, cached, active, shared, leaked."""
    for number in range(90):
        owner = engine.arrive(2400, tenant=number % 3)
        oldest = next(iter(engine.live.values()))
        donor = oldest.table[:4] if number % 3 == 0 else ()
        engine.admit(owner, 150, shared=donor)
        engine.first_token(owner)
        engine.step(0.1)
        if number % 4 == 1 and number > 4:
            engine.finish(owner, leak=2 if number == 41 else 0)
    for _ in range(60):
        engine.step(0.1)
    engine.audit()


@pytest.fixture
def map_page(browser, large_map):
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.goto(f"{large_map.address}/block-map")
    page.wait_for_selector("canvas[data-painted]", timeout=30_000)
    page.get_by_text("Live", exact=True).click()  # stand still: nothing else paints
    page.wait_for_selector('[data-testid="stCheckbox"] input:not(:checked)', state="attached")
    yield page
    page.close()


def test_the_map_paints_within_a_second_of_a_click_and_shows_what_the_store_holds(
    map_page, large_map
):
    took = [
        map_page.evaluate(CLICK, [label, expected])
        for _ in range(2)
        for label, expected in COLOURINGS
    ]
    print(f"click to paint, ms: {sorted(round(ms) for ms in took)}")
    assert statistics.median(took) < 1000

    state = large_map.truth.state
    chosen = sample(state, large_map.leaked)
    for block in chosen:
        expected = LEAKED if block in large_map.leaked else COLOURS[BlockState(int(state[block]))]
        assert tuple(map_page.evaluate(CELL, [block])) == expected, block


def sample(state: np.ndarray, leaked: list[int]) -> list[int]:
    """Choose 20 blocks with every state and a leak among them."""
    draw = np.random.default_rng(5)
    blocks = leaked[:2]
    for kind in BlockState:
        blocks += draw.choice(np.flatnonzero(state == kind), 6, replace=False).tolist()
    assert len(blocks) == 20
    return blocks


def test_hovering_a_cell_tells_its_block_state_owner_and_tenant(map_page, large_map):
    state, owner = large_map.truth.state, large_map.truth.owner
    block = int(np.flatnonzero((state == BlockState.ACTIVE) & (owner > 0))[5])
    canvas = map_page.locator("canvas[data-painted]")
    layout = canvas.evaluate("node => [node.dataset.pitch, node.dataset.columns].map(Number)")
    pitch, columns = layout
    box = canvas.bounding_box()
    map_page.mouse.move(
        box["x"] + 46 + block % columns * pitch + 2, box["y"] + block // columns * pitch + 2
    )

    tip = map_page.locator(".tip").inner_text()

    tenant = large_map.truth.tenants[int(large_map.truth.tenant[block])]
    assert f"Block {block}" in tip
    assert f"sequence {owner[block]}" in tip
    assert f"Tenant: {tenant}" in tip


def test_picking_a_sequence_lights_exactly_its_blocks(map_page, large_map):
    owner = int(large_map.truth.ref_owner[0])
    mine = large_map.truth.blocks_of(owner)
    box = map_page.get_by_label("Light the blocks of")
    box.click()
    box.fill(f"sequence {owner} ")
    map_page.keyboard.press("Enter")

    map_page.get_by_text(f"Sequence {owner}: {len(mine)} blocks lit").wait_for()


def test_the_map_fits_a_phone_without_sideways_scrolling(browser, large_map):
    page = browser.new_page(viewport={"width": 390, "height": 844})
    page.goto(f"{large_map.address}/block-map")
    page.wait_for_selector("canvas[data-painted]", timeout=30_000)

    box = page.locator("canvas[data-painted]").bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 390
    assert page.evaluate("document.scrollingElement.scrollWidth") <= 390
    page.close()
