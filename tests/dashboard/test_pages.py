"""Every page in every state: full, empty, stale, partial. Nothing raises; each says what is so."""

import re
from pathlib import Path

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from agent.errors import StoreUnreadable
from agent.gpus import GpuFigure
from agent.reads.gpus import GpuSeries
from agent.reads.models import RunState
from dashboard.pages import PAGES
from tests.dashboard.fake_reads import FakeReads

PATHS = [entry.path for entry in PAGES]
APP = Path(__file__).parents[2] / "dashboard" / "app.py"


def texts(page: AppTest) -> str:
    """Return all that a page says, markup removed only where a test asks for it."""
    parts = [element.proto.body for element in page.get("html")]
    for kind in ("markdown", "info", "warning", "error", "title", "caption", "code"):
        parts += [element.value for element in page.get(kind)]
    return "\n".join(parts)


@pytest.mark.parametrize("path", PATHS)
def test_every_page_draws_a_busy_engine(app, path):
    page = app(FakeReads(), path)

    assert not page.exception
    assert "Drawn from 100 % of this window" in texts(page)


@pytest.mark.parametrize("path", PATHS)
def test_every_page_draws_an_engine_that_has_measured_nothing(app, path):
    page = app(FakeReads(measured=False), path)

    assert not page.exception
    assert "No event stored yet" in texts(page)


@pytest.mark.parametrize("path", PATHS)
def test_every_page_says_that_old_values_are_old(app, path):
    page = app(FakeReads(commit_age_seconds=754), path)

    assert not page.exception
    assert re.search("[Nn]othing new", texts(page))
    assert re.search("[Ii]s `kvpulse agent` running", texts(page))


@pytest.mark.parametrize("path", PATHS)
def test_every_page_says_that_the_writer_is_gone(app, path):
    page = app(FakeReads(state=RunState.DEAD), path)

    assert not page.exception
    assert re.search("writer is gone|engine is gone|without closing its journal", texts(page))


@pytest.mark.parametrize("path", PATHS)
def test_every_page_says_what_a_gap_took(app, path):
    page = app(FakeReads(with_gap=True), path)

    assert not page.exception
    assert "the run lost 412 in 1 gap" in texts(page)


@pytest.mark.parametrize("path", PATHS)
def test_a_store_that_cannot_be_read_just_now_is_said_and_does_not_break_the_page(app, path):
    reads = FakeReads()

    def fail(*_):
        raise StoreUnreadable("kv.db", "disk I/O *error*")

    reads.telemetry = fail

    page = app(reads, path)

    assert not page.exception
    assert page.warning[0].value.startswith(
        r"cannot read the store kv\.db just now\: disk I/O \*err"
    )


def test_no_store_yet_says_what_to_run(monkeypatch, tmp_path):
    monkeypatch.setenv("KVPULSE_STORE", str(tmp_path / "absent.db"))

    page = AppTest.from_file(APP, default_timeout=20).run()

    assert not page.exception
    assert page.title[0].value == "No store yet"
    assert "kvpulse demo" in texts(page)


def test_no_engine_yet_says_what_to_run(monkeypatch):
    import dashboard.connection

    empty = FakeReads(num_engines=0)
    monkeypatch.setattr(dashboard.connection, "cached_reads", lambda store, made: empty)

    page = AppTest.from_file(APP, default_timeout=20).run()

    assert not page.exception
    assert page.title[0].value == "No engine yet"
    assert "kvpulse serve" in texts(page)


def test_several_engines_are_listed_worst_first(app):
    page = app(FakeReads(num_engines=3, num_waiting=9))

    statuses = page.dataframe[0].value["Status"].tolist()

    assert "9 waiting" in statuses[0]
    assert page.dataframe[0].value["Engine"].tolist() == ["llm-0", "llm-1", "llm-2"]


def test_the_overview_begins_with_the_verdict_its_evidence_and_what_to_do(app):
    said = texts(app(FakeReads(num_leaks=3)))

    verdict = said[: said.index("Just now: ")]
    assert "<b>pool leak</b> · warning · high confidence · 60 s up to " in verdict
    assert "References never released: 3 blocks of ended sequences 121" in verdict
    assert "<li>3 blocks leaked: 40, 41, 42</li>" in verdict
    assert "<b>fix code</b> · Find the path by which" in verdict
    assert "**Means** blocks are active although their sequences have ended" in said
    assert "Just now: 3 blocks are still active after their owner ended" in said


def test_a_healthy_engine_has_a_verdict_of_one_line(app):
    said = texts(app(FakeReads(num_waiting=0)))

    calm = said[: said.index("</div>")]
    assert '<div class="kv-verdict calm"' in calm
    assert "<b>healthy</b>" in calm
    assert "Just now" not in said
    assert "What to do" not in said


def test_a_verdict_over_old_values_says_that_they_are_not_of_now(app):
    said = texts(app(FakeReads(commit_age_seconds=754)))

    assert "<b>telemetry incomplete</b>" in said
    # A busy machine may draw it a second later.
    assert re.search(r"for 75\d s; what is known ends at", said)


def test_too_little_data_is_unknown_and_says_what_is_missing(app):
    said = texts(app(FakeReads(measured=False)))

    assert "<b>unknown</b> · info · low confidence" in said
    assert "Nothing is stored of this window" in said


def test_a_missing_price_is_an_empty_tile_with_its_reason(app):
    assert "no price given: start with --price-per-hour" in texts(app(FakeReads()))


def test_markup_in_a_tenant_stays_text(app):
    reads = FakeReads(tenant="<img src=x onerror=alert(1)>", num_blocks=64)

    for path in PATHS:
        assert "<img" not in texts(app(reads, path))


def test_colouring_by_owner_changes_the_map_s_legend(app):
    page = app(FakeReads(), "block-map")
    assert "leaked" in texts(page)

    page.session_state["colour"] = "owner"
    page.run()

    assert "sequence 1" in texts(page)


def test_choosing_a_sequence_lights_its_blocks(app):
    page = app(FakeReads(), "block-map")
    box = next(box for box in page.selectbox if box.label == "Light the blocks of")

    box.set_value(140).run()

    assert "Sequence 140:" in texts(page)
    assert "blocks lit" in texts(page)


def test_choosing_a_request_draws_its_timeline_and_facts(app):
    page = app(FakeReads(), "requests")
    box = next(box for box in page.selectbox if box.label == "Timeline of")

    box.set_value(154).run()

    assert "**Sequence 154**" in texts(page)
    assert "Preempted for</span><div>157</div>" in texts(page)
    assert "The table stands still" in texts(page)


def test_the_table_s_filter_keeps_only_what_it_says(app):
    page = app(FakeReads(), "requests")
    box = next(box for box in page.selectbox if box.label == "Show")

    box.set_value("preempted").run()

    assert set(page.dataframe[0].value["Preempted"]) == {1}


def test_the_sharing_page_says_what_was_saved_and_what_it_cost(app):
    said = texts(app(FakeReads(), "sharing"))

    assert "Sharing pays:" in said
    assert "prompt tokens" in said
    assert "were copied on a write" in said
    assert "Found again on resume" in said


def test_the_sharing_page_of_an_engine_that_shares_nothing_says_so(app):
    said = texts(app(FakeReads(shares=False), "sharing"))

    assert "Nothing was shared in this window" in said
    assert "Nothing was copied or swapped in this window." in said
    assert "no new prompt was looked up in this window" in said


def test_the_tenants_page_names_who_uses_most_and_who_is_at_its_quota(app):
    page = app(FakeReads(), "tenants")

    said = texts(page)
    assert "4 tenants; search used most: 48 % of the block-seconds" in said
    assert "batch: 2 wait for its quota (17.0 s)" in said
    table = page.dataframe[0].value
    assert table["Tenant"].tolist() == ["search", "chat", "batch", "no tenant"]
    assert table["Rejected"].tolist() == [0, 3, 6, 9]


def test_a_tenants_page_without_requests_says_so(app):
    said = texts(app(FakeReads(measured=False), "tenants"))

    assert "No request was alive in this window" in said
    assert "No tenant held a block in this window." in said


def test_the_requests_page_names_who_holds_the_line_up(app):
    page = app(FakeReads(held_up=True), "requests")

    assert "Sequence 131 is at the head of the line" in page.warning[0].value


def test_telemetry_says_why_there_is_no_gpu_to_show(app):
    page = app(FakeReads(), "telemetry")

    assert "Not available: gpu-host: NVML Shared Library Not Found." in texts(page)


def test_telemetry_shows_each_gpu_with_the_reason_for_what_is_missing(app):
    now = FakeReads().now_ns
    values = {figure.value: np.array([1.0, 2.0]) for figure in GpuFigure}
    values["utilization_ratio"][1] = np.nan
    minutes = np.array([now - 120_000_000_000, now - 60_000_000_000])
    missing = {"utilization_ratio": "Not Supported"}
    one = GpuSeries("node-1", "0/1", "H200", minutes, values, missing)
    page = app(FakeReads(now_ns=now, gpu_series=(one,)), "telemetry")

    table = page.dataframe[-1].value.iloc[0]
    assert not page.exception
    assert (table["Machine"], table["GPU"], table["Power"]) == ("node-1", "0/1", "2 W")
    assert table["Utilisation"] is None
    assert table["Not available"] == "utilisation: Not Supported"


def test_telemetry_names_a_broken_law(app):
    page = app(FakeReads(audits_failed=2), "telemetry")

    laws = next(frame.value for frame in page.dataframe if "Law" in frame.value)
    assert laws["Blocks"].tolist() == ["7"]
    assert laws["Held again"].tolist() == [None]
