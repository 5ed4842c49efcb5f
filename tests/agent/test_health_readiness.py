"""When the agent says that it is ready, and what it says when it is not."""

from agent.http.health import judge
from agent.live_view import LiveView
from agent.reads.models import RunState
from tests.agent.factories_live import NOW_NS, SECOND, live_engine, view_of


def problems_of(view, now_ns=NOW_NS):
    return [(p.subject, p.text) for p in judge(view.snapshot(), now_ns).problems]


def test_a_fresh_engine_and_a_writable_store_are_ready():
    assert judge(view_of(live_engine()).snapshot(), NOW_NS).is_ready


def test_without_any_engine_the_journal_folder_is_named():
    [(subject, text)] = problems_of(view_of())

    assert subject == "sources"
    assert "/dev/shm/kvpulse-0" in text


def test_an_engine_that_died_is_named():
    view = view_of(live_engine(), live_engine(engine="engine-1", state=RunState.DEAD))

    [(subject, text)] = problems_of(view)

    assert subject == "engine engine-1"
    assert "went away" in text


def test_an_engine_that_finished_is_no_problem():
    assert problems_of(view_of(live_engine(state=RunState.FINISHED))) == []


def test_a_silent_engine_is_told_with_its_age():
    view = view_of(live_engine(last_commit_at_ns=NOW_NS - 42 * SECOND, behind_records=7))

    [(_, text)] = problems_of(view)

    assert "42 s" in text
    assert "7 records" in text


def test_a_lag_above_the_bound_is_told():
    assert problems_of(view_of(live_engine(lag_seconds=5.0))) == []

    [(_, text)] = problems_of(view_of(live_engine(lag_seconds=6.5)))

    assert "6.5 s late" in text


def test_a_virtual_clock_has_no_lag_to_be_judged():
    assert problems_of(view_of(live_engine(lag_seconds=None))) == []


def test_a_store_that_takes_no_writes_is_named():
    view = view_of(live_engine())
    view.note_store(writable=False)

    [(subject, text)] = problems_of(view)

    assert subject == "store"
    assert "kvpulse.db" in text


def test_a_loop_that_stands_still_is_told():
    view = view_of(live_engine(last_commit_at_ns=NOW_NS + 30 * SECOND))

    [(subject, text)] = problems_of(view, NOW_NS + 31 * SECOND)

    assert subject == "agent"
    assert "31 s" in text


def test_before_the_first_round_the_agent_is_not_ready():
    subjects = [subject for subject, _ in problems_of(LiveView(NOW_NS))]

    assert subjects == ["agent", "sources"]


def test_a_reported_error_stays_until_it_is_cleared():
    view = view_of(live_engine())
    view.note_error("stream engine-0", "wrong magic", NOW_NS - 3 * SECOND)
    assert problems_of(view) == [("stream engine-0", "wrong magic")]

    view.clear_error("stream engine-0")

    assert problems_of(view) == []
