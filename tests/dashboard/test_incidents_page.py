"""The page Incidents over a real store; it acknowledges through a real agent."""

from dataclasses import replace

import pytest

from agent.http.app import create_app
from agent.http.server import start_http_server
from agent.incidents.desk import IncidentDesk
from agent.reads.models import MarkKind, RunState
from agent.reads.reads import open_reads
from agent.triage.incidents import Change, IncidentChange
from dashboard.frames.incidents import bundle_command, urgent_first
from tests.agent.factories_live import view_of
from tests.agent.factories_store import NS, empty_store
from tests.agent.incidents.factories_incidents import (
    AT,
    closed,
    incident,
    leak_diagnosis,
    opened,
    store_run,
    write,
)
from tests.dashboard.test_baselines_page import box, press
from tests.dashboard.test_pages import texts


@pytest.fixture
def where(tmp_path):
    return empty_store(tmp_path)


@pytest.fixture
def run_key(where):
    return store_run(where)


@pytest.fixture
def reads(where, run_key):
    opened_reads = open_reads(where)
    yield opened_reads
    opened_reads.close()


@pytest.fixture
def agent(where, monkeypatch):
    desk = IncidentDesk(where)
    server = start_http_server(create_app(view_of(), incidents=desk), host="127.0.0.1", port=0)
    monkeypatch.setenv("KVPULSE_AGENT", server.url)
    yield
    server.stop()
    desk.close()


def grown(where, run_key, key=1):
    """Open an incident of one leaked block that becomes two."""
    write(where, run_key, opened())
    more = leak_diagnosis(7, 8)
    now = incident(diagnosis=more, finding=more.headline, key=key)
    write(where, run_key, IncidentChange(Change.UPDATED, now))


def test_a_store_without_incidents_says_so_quietly(app, reads):
    said = texts(app(reads, "incidents"))

    assert "<b>No incident is open</b>" in said
    assert "None has been recorded." in said


def test_open_incidents_stand_first_and_the_newest_of_them_is_shown_in_full(
    app, reads, where, run_key
):
    earlier = AT - 200 * NS
    write(where, run_key, opened(opened_at_ns=earlier))
    write(where, run_key, closed(earlier + 60 * NS, opened_at_ns=earlier, key=1))
    grown(where, run_key, key=2)

    page = app(reads, "incidents")

    said = texts(page)
    assert said.index("**Open: 1**") < said.index("**Closed**")
    assert "<b>pool leak</b> · engine-a · incident 2 · open for " in said
    assert "<b>fix code</b>" in said
    assert "<i>Acknowledged</i><span>nobody yet</span>" in said
    assert "2.5 sequences held up at" in said
    table = page.dataframe[0].value
    assert (table["No."].tolist(), table["Ended"].tolist()) == ([1], ["cleared"])
    assert table["Lasted"].tolist() == ["1 min 00 s"]


def test_evidence_is_shown_as_it_was_at_opening_and_as_it_is_now(app, reads, where, run_key):
    grown(where, run_key)

    said = texts(app(reads, "incidents"))

    then, now = said.index("<li>1 block leaked: 7</li>"), said.index("<li>2 blocks leaked: 7, 8<")
    assert then < now
    assert said.index("**When it opened**") < said.index("**Newest evidence, of ")
    assert "kvpulse incident bundle 1" in said
    assert "**Means** blocks are active" in said


def test_an_incident_is_acknowledged_with_a_name_and_a_note(app, reads, where, run_key, agent):
    grown(where, run_key)
    page = app(reads, "incidents")
    by, note = page.text_input
    by.input("Ada")
    note.input("restarting <b>now</b>")

    press(page, "Acknowledge")

    (row,) = reads.incidents()
    assert (row.acknowledged_by, row.acknowledged_note) == ("Ada", "restarting <b>now</b>")
    assert page.success[0].value == r"Incident 1 is acknowledged by Ada\."
    assert "by Ada at " in texts(page)
    assert "restarting &lt;b&gt;now" in texts(page)


def test_nobody_acknowledges_without_a_name(app, reads, where, run_key, agent):
    grown(where, run_key)

    page = press(app(reads, "incidents"), "Acknowledge")

    assert page.error[0].value.startswith("Say your name")
    assert reads.incidents()[0].acknowledged_at_ns is None


def test_without_an_agent_an_acknowledgement_says_what_to_start(
    app, reads, where, run_key, monkeypatch
):
    grown(where, run_key)
    monkeypatch.setenv("KVPULSE_AGENT", "http://127.0.0.1:1")
    page = app(reads, "incidents")
    page.text_input[0].input("Ada")

    press(page, "Acknowledge")

    assert "start one with \\`kvpulse agent\\`" in page.error[0].value


def test_a_closed_incident_can_be_read_in_full(app, reads, where, run_key):
    write(where, run_key, opened(), closed(AT + 60 * NS))
    page = app(reads, "incidents")

    box(page, "All of").select(1).run()

    said = texts(page)
    assert "**Incident 1\\: pool leak, engine\\-a**" in said
    assert "**At its last, " in said
    assert "Ended</span><div>cleared</div>" in said


def test_a_verdict_of_a_newer_agent_is_listed_and_breaks_nothing(app, reads, where, run_key):
    grown(where, run_key)
    (row,) = reads.incidents()
    reads.incidents = lambda wanted=None: [replace(row, verdict="gremlins")]

    page = app(reads, "incidents")

    assert not page.exception
    assert "<b>gremlins</b>" in texts(page)


def test_the_overview_leads_to_an_open_incident(app, reads, where, run_key):
    grown(where, run_key)

    said = texts(app(reads, "overview"))

    assert "[Incident 1: pool leak](incidents?incident=1) · open for " in said
    assert "nobody has acknowledged it" in said


def test_an_incident_is_a_mark_on_the_time_charts_of_its_run(reads, where, run_key):
    write(where, run_key, opened())

    marks = reads.marks(run_key, AT - NS, AT + NS)

    (mark,) = [mark for mark in marks if mark.kind is MarkKind.INCIDENT]
    assert mark.t_ns == AT
    assert mark.text.startswith("incident 1, pool_leak: references never released")
    before = reads.marks(run_key, AT - 9 * NS, AT)
    assert not any(mark.kind is MarkKind.INCIDENT for mark in before)


def test_an_incident_s_length_goes_on_while_nothing_new_is_written(reads, where, run_key):
    grown(where, run_key)
    (row,) = reads.incidents()

    assert row.lasted_ns(row.updated_at_ns) == 20 * NS
    assert row.lasted_ns(row.updated_at_ns + 40 * NS) == 60 * NS
    assert row.lasted_ns(row.updated_at_ns - NS) == 20 * NS


def test_an_incident_that_has_just_opened_shows_its_evidence_once(app, reads, where, run_key):
    write(where, run_key, opened())

    said = texts(app(reads, "incidents"))

    assert said.count("<li>1 block leaked: 7</li>") == 1
    assert "Newest evidence" not in said


@pytest.mark.parametrize(
    ("store", "told"),
    [
        ("/state/kvpulse.db", ""),
        ("/my data/s.db", " --store '/my data/s.db'"),
        ("postgresql://me:secret@db/kvpulse", ' --store "$KVPULSE_STORE"'),
    ],
)
def test_the_bundle_command_names_another_store_and_never_a_password(store, told):
    command = bundle_command(4, store=store, default="/state/kvpulse.db")

    assert command == f"kvpulse incident bundle 4{told}"


def test_red_incidents_stand_before_newer_amber_ones(app, reads, where, run_key):
    grown(where, run_key)
    (leak,) = reads.incidents()
    down = replace(leak, key=7, verdict="engine_down")

    assert [row.key for row in urgent_first([leak, down])] == [7, 1]
    assert [row.key for row in urgent_first([leak, replace(leak, key=9)])] == [1, 9]


def test_open_incidents_of_a_run_that_is_over_say_what_closes_them(app, reads, where, run_key):
    grown(where, run_key)
    (engine,) = reads.engines()
    reads.engines = lambda: [replace(engine, state=RunState.FINISHED)]

    said = texts(app(reads, "incidents"))

    assert "The run of 1 is over" in said
