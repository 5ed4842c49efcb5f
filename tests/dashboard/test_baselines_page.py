"""The page Baselines asks a real agent over HTTP, and shows what is in the store behind it."""

import re

import pytest

from agent.baseline_desk import BaselineDesk
from agent.http.app import create_app
from agent.http.server import start_http_server
from agent.reads.reads import open_reads
from tests.agent.factories_live import view_of
from tests.agent.factories_recorded import HOUR, record, recorded_store
from tests.dashboard.test_pages import texts

TOKEN = "0123456789abcdef0123456789abcdef"


@pytest.fixture
def store(tmp_path):
    path = tmp_path / "kvpulse.db"
    path.write_bytes(recorded_store())
    return str(path)


@pytest.fixture
def reads(store):
    opened = open_reads(store)
    yield opened
    opened.close()


@pytest.fixture
def agent(store, monkeypatch):
    """Serve the store's agent, and tell the dashboard where."""
    desk = BaselineDesk(store)
    server = start_http_server(create_app(view_of(), baselines=desk), host="127.0.0.1", port=0)
    monkeypatch.setenv("KVPULSE_AGENT", server.url)
    yield desk
    server.stop()
    desk.close()


@pytest.fixture
def page(app, reads):
    return lambda: app(reads, "baselines")


def box(page, label):
    return next(found for found in page.selectbox if found.label == label)


def press(page, label):
    return next(button for button in page.button if button.label == label).click().run()


def test_a_page_without_baselines_says_what_to_do(page, agent):
    said = texts(page())

    assert "Nothing is saved yet. Save the engine" in said


def test_hours_are_saved_under_a_name_and_listed(page, agent, reads):
    shown = page()
    shown.text_input[0].input("calm")
    box(shown, "Hours").select("last 1 h")

    press(shown, "Save")

    assert re.match(r"calm is saved\\: .*\\\(1h\\\), 100 % recorded", shown.success[0].value)
    assert [row.name for row in reads.baselines()] == ["calm"]
    table = shown.dataframe[0].value.iloc[0]
    assert (table["Name"], table["Engine"], table["Length"]) == ("calm", "engine-a", "1h")
    assert (table["Recorded"], table["Arrivals"], table["Prompt"]) == (1.0, 1.0, 1000.0)
    assert table["Inter-token p50"] == pytest.approx(50, rel=0.02)


def test_hours_between_two_moments_are_saved(page, agent, reads):
    shown = page()
    shown.text_input[0].input("then")
    box(shown, "Hours").select("from … to …").run()
    newest = reads.engines()[0].last_event_at_ns
    start, end = shown.datetime_input
    start.set_value(end.value.replace(hour=end.value.hour - 1))

    press(shown, "Save")

    (row,) = reads.baselines()
    assert row.end_at_ns - row.start_at_ns == HOUR * 10**9
    assert 0 <= newest - row.end_at_ns < 60 * 10**9


def test_an_end_before_the_beginning_is_said(page, agent, reads):
    shown = page()
    shown.text_input[0].input("then")
    box(shown, "Hours").select("from … to …").run()
    start, end = shown.datetime_input
    start.set_value(end.value)

    press(shown, "Save")

    assert "after the beginning" in shown.error[0].value
    assert reads.baselines() == []


def test_a_name_that_is_taken_is_said_in_the_agent_s_words(page, agent):
    agent.save("calm", engine=None, last_seconds=HOUR)
    shown = page()
    shown.text_input[0].input("calm")

    press(shown, "Save")

    assert "calm" in shown.error[0].value
    assert not shown.exception


def test_newer_hours_are_held_against_a_baseline(page, agent, store):
    agent.save("calm", engine=None, last_seconds=HOUR)
    record(store, first=2 * HOUR, seq=1, seed=2, inter_token_ns=60_000_000)
    shown = page()
    box(shown, "How long").select("last 1 h")

    press(shown, "Compare")

    said = texts(shown)
    assert "<b>Worse: last 1h is worse than calm</b>" in said
    assert "worse: inter-token p50 +20 %" in said
    assert said.count('<span class="kv-answer worse">') == 2
    assert "Arrivals per second</th><td>1</td><td>1</td>" in said
    assert "The same on both sides." in said
    assert "kvpulse baseline compare calm --last 1h --engine engine-a --why" in said

    box(shown, "How long").select("last 4 h").run()

    assert "Worse: last 1h" not in texts(shown)  # it was the answer to another question


def test_one_baseline_is_held_against_another(page, agent):
    agent.save("calm", engine=None, last_seconds=HOUR)
    agent.save("also", engine=None, last_seconds=HOUR)
    shown = page()
    box(shown, "Hold").select("also").run()
    assert box(shown, "against").options == ["calm"]

    press(shown, "Compare")

    assert "Same: no change found between calm and also" in texts(shown)


def test_hours_that_nobody_recorded_last_week_are_unknown_and_no_error(page, agent):
    shown = page()
    assert box(shown, "against").value == "the same hours last week"

    press(shown, "Compare")

    said = texts(shown)
    assert "<b>Unknown: last 4h against the same hours last week cannot be told</b>" in said
    assert not shown.error


def test_a_baseline_is_read_in_full_and_deleted_only_when_confirmed(page, agent, reads):
    agent.save("calm", engine=None, last_seconds=HOUR)
    shown = page()
    box(shown, "All of").select("calm").run()
    assert "max batch 16, model m" in texts(shown)
    assert [row.name for row in reads.baselines()] == ["calm"]

    press(shown, "Delete calm")

    assert reads.baselines() == []
    assert shown.success[0].value == r"calm is deleted\."


def test_without_an_agent_the_page_still_lists_and_says_what_to_start(page, agent, monkeypatch):
    agent.save("calm", engine=None, last_seconds=HOUR)
    monkeypatch.setenv("KVPULSE_AGENT", "http://127.0.0.1:1")
    shown = page()
    assert shown.dataframe[0].value["Name"].tolist() == ["calm"]

    press(shown, "Compare")

    assert "start one with \\`kvpulse agent\\`" in shown.error[0].value
    assert not shown.exception


def test_an_agent_of_another_version_is_said_and_breaks_nothing(page, agent, monkeypatch):
    monkeypatch.setattr("agent.http.baselines.comparison_document", lambda found: {"answer": "so"})
    shown = page()

    press(shown, "Compare")

    assert "not that of an agent of this version" in shown.error[0].value
    assert not shown.exception


def test_the_agent_s_token_is_sent(page, store, tmp_path, monkeypatch):
    desk = BaselineDesk(store)
    app = create_app(view_of(), baselines=desk, token=TOKEN)
    server = start_http_server(app, host="127.0.0.1", port=0)
    monkeypatch.setenv("KVPULSE_AGENT", server.url)
    shown = page()
    press(shown, "Compare")
    assert shown.error

    private = tmp_path / "token"
    private.write_text(TOKEN + "\n")
    private.chmod(0o600)
    monkeypatch.setenv("KVPULSE_TOKEN_FILE", str(private))
    press(shown.run(), "Compare")

    server.stop()
    desk.close()
    assert not shown.error
    assert "cannot be told" in texts(shown)
