"""The pages over a store that Recorder, ledger and store wrote: numbers equal the engine's own."""

import re
from datetime import UTC, datetime

import numpy as np
import pytest

from agent.reads.reads import open_reads
from dashboard.config import DashboardConfig
from dashboard.data import Data
from kvpulse.events import BlockState
from tests.dashboard.conftest import page_script
from tests.dashboard.store_factory import ScriptedEngine, busy_run, store_journal

SECOND = 1_000_000_000


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Serve a minute, look at the truth, serve another minute with a leak at its end."""
    folder = tmp_path_factory.mktemp("recorded")
    engine = ScriptedEngine(folder / "journal", total=160, seconds_ago=120)
    busy_run(engine, seconds=60)
    at_minute = np.bincount(engine.state, minlength=3).tolist()
    busy_run(engine, seconds=50, seed=8)
    leaking = next(row.owner for row in engine.live.values() if len(row.table) > 4)
    engine.finish(leaking, leak=3)
    for _ in range(10):
        engine.step(0.5)
        engine.audit()
    store_journal(folder / "journal", folder / "store.db")
    reads = open_reads(str(folder / "store.db"))
    yield engine, Data(reads, DashboardConfig(store="x")), reads, at_minute, leaking
    reads.close()


def page_of(monkeypatch, reads, path):
    from streamlit.testing.v1 import AppTest

    import dashboard.connection

    monkeypatch.setattr(dashboard.connection, "cached_reads", lambda store, made: reads)
    return AppTest.from_function(page_script, kwargs={"page_path": path}, default_timeout=20)


def html_of(page):
    return "\n".join(element.proto.body for element in page.get("html"))


def legend_of(page):
    found = re.findall(r"</i>([a-z, ]+) <b>(\d+)</b>", html_of(page))
    return {name: int(number) for name, number in found}


def test_the_map_s_legend_counts_what_the_engine_holds_now(monkeypatch, recorded):
    engine, _, reads, _, _ = recorded

    counts = legend_of(page_of(monkeypatch, reads, "block-map").run())

    states = np.bincount(engine.state, minlength=3)
    assert counts["free"] == states[BlockState.FREE]
    assert counts["cached"] == states[BlockState.CACHED]
    assert counts["leaked"] == 3
    assert counts["active"] + 3 == states[BlockState.ACTIVE]


def test_the_scrubber_shows_the_map_as_it_was(monkeypatch, recorded):
    _, _, reads, at_minute, _ = recorded
    row = reads.engines()[0]
    # The minute's last event is on a whole second of the run; the scrubber stands on whole ones.
    minute = row.started_at_ns // SECOND + 61
    page = page_of(monkeypatch, reads, "block-map")
    page.session_state["when"] = "At a time"
    page.session_state[f"scrub-{row.run_key}-15 min"] = datetime.fromtimestamp(minute, tz=UTC)

    counts = legend_of(page.run())

    then = reads.block_map(row.run_key, minute * SECOND)
    states = np.bincount(then.state, minlength=3)
    assert [counts["free"], counts["cached"], counts["active"]] == states.tolist()
    exactly = reads.block_map(row.run_key, row.started_at_ns + 60 * SECOND)
    assert np.bincount(exactly.state, minlength=3).tolist() == at_minute
    assert "· exact" in html_of(page)


def test_a_link_to_the_map_stands_at_the_moment_that_it_names(monkeypatch, recorded):
    _, _, reads, _, _ = recorded
    row = reads.engines()[0]
    minute = row.started_at_ns + 61 * SECOND
    page = page_of(monkeypatch, reads, "block-map")
    page.query_params["engine"] = row.engine
    page.query_params["at"] = str(minute)

    counts = legend_of(page.run())

    then = reads.block_map(row.run_key, minute // SECOND * SECOND)
    states = np.bincount(then.state, minlength=3)
    assert [counts["free"], counts["cached"], counts["active"]] == states.tolist()
    assert page.session_state["when"] == "At a time"


@pytest.mark.parametrize("at", ["", "now", "9" * 30, "1", "9" * 19])
def test_a_link_with_a_moment_that_is_none_breaks_nothing(monkeypatch, recorded, at):
    _, _, reads, _, _ = recorded
    page = page_of(monkeypatch, reads, "block-map")
    page.query_params["at"] = at

    page.run()

    assert not page.exception
    assert legend_of(page)


def test_the_overview_names_the_leak_and_the_refusals(monkeypatch, recorded):
    _, _, reads, _, _ = recorded

    html = html_of(page_of(monkeypatch, reads, "overview").run())

    assert "3 blocks are still active after their owner ended" in html


def test_arrivals_and_refusals_in_the_strip_are_those_of_the_journal(recorded):
    engine, data, _, _, _ = recorded
    row = data.engines()[0]
    kinds = {kind.name: number for kind, number in engine.recorder.emitted().items()}

    tiles = {tile.name: tile for tile in data.strip(row, data.window(row, 900))}

    assert tiles["Rejection rate"].note.startswith(f"{kinds['REJECT']} of {kinds['ARRIVE']}")
    assert tiles["Bytes per token"].value == "45 KiB"


def test_the_timeline_of_the_leaking_request_ends_with_its_end(recorded):
    _, data, _, _, leaking = recorded
    row = data.engines()[0]
    request = data.request(row, leaking)

    timeline = data.timeline(row, request)

    assert timeline.note is None
    assert timeline.points[0].name == "arrive"
    assert timeline.points[-1].name == "end"
    assert timeline.bars[-1].end_ns == request.ended_at_ns


def test_waits_on_the_chart_add_up_to_the_waits_of_the_requests(recorded):
    _, data, reads, _, _ = recorded
    row = data.engines()[0]
    window = data.window(row, 900)

    drawn = np.nansum(data.waits(row, window).values["pool"])

    rows = reads.requests(row.run_key, window.start_ns, window.end_ns, limit=2000)
    asked = sum((request.wait_pool_ns or 0) for request in rows) / SECOND
    assert asked > 20
    assert drawn == pytest.approx(asked, rel=0.02, abs=1.0)


def test_every_event_of_the_run_is_told_as_stored(recorded):
    engine, data, _, _, _ = recorded
    row = data.engines()[0]

    totals = data.kind_totals(row)

    assert {name: total.stored for name, total in totals.items() if total.stored} == {
        kind.name.lower(): number for kind, number in engine.recorder.emitted().items() if number
    }
