"""A request's timeline: phases from its events, or honestly from totals where those are gone."""

from agent.reads.models import RequestEvent, RequestState
from dashboard.charts.timeline import point_labels
from dashboard.frames.timeline import Point, timeline_of
from tests.dashboard.factories_rows import request_row

SECOND = 1_000_000_000


def events(*lines):
    return [RequestEvent(int(at * SECOND), kind, text, *more) for at, kind, text, *more in lines]


def phases(timeline):
    return [(bar.phase, (bar.end_ns - bar.start_ns) / SECOND) for bar in timeline.bars]


ROW = request_row(104, 100 * SECOND, (RequestState.FINISHED,))
LIFE = events(
    (0, "arrive", "arrived: 812 prompt tokens"),
    (1, "wait", "waits: pool_behind (also token_budget), behind sequence 3", "pool_behind"),
    (3, "wait", "waits: pool", "pool"),
    (6, "allocate", "took 51 blocks (0-50)"),
    (6, "admit", "admitted to the running batch"),
    (7, "first_token", "first token"),
    (10, "preempt", "preempted (recompute) for sequence 9: 190 tokens lost"),
    (12, "resume", "running again, 256 tokens found again"),
    (13, "first_token", "first token after resuming"),
    (20, "finish", "ended, stop: 200 tokens out"),
)


def test_each_wait_is_a_bar_of_its_own_cause():
    assert phases(timeline_of(LIFE, ROW, 100 * SECOND)) == [
        ("engine_busy", 1),
        ("pool_behind", 2),
        ("pool", 3),
        ("prefill", 1),
        ("decode", 3),
        ("engine_busy", 2),
        ("prefill", 1),
        ("decode", 7),
    ]


def test_a_wait_of_unknown_cause_is_drawn_as_such_whatever_its_text_says():
    life = [LIFE[0], *events((1, "wait", "waits: code 42 (also pool)")), *LIFE[4:]]

    assert phases(timeline_of(life, ROW, 100 * SECOND))[:2] == [
        ("engine_busy", 1),
        ("unknown wait", 5),
    ]


def test_being_the_beneficiary_of_a_preemption_is_not_being_preempted():
    other = events((8, "preempt", "sequence 5 preempted (recompute) for sequence 104", None, 5))
    with_other = sorted([*LIFE, *other], key=lambda event: event.t_ns)

    timeline = timeline_of(with_other, ROW, 100 * SECOND)

    assert phases(timeline) == phases(timeline_of(LIFE, ROW, 100 * SECOND))
    assert [point.name for point in timeline.points].count("preempt") == 1
    assert "other" in [point.name for point in timeline.points]


def test_a_request_that_still_waits_is_drawn_up_to_now():
    timeline = timeline_of(LIFE[:3], ROW, 9 * SECOND)

    assert phases(timeline)[-1] == ("pool", 6)


def test_a_lost_beginning_is_told():
    assert "picture starts later" in timeline_of(LIFE[3:], ROW, 100 * SECOND).note
    assert timeline_of(LIFE, ROW, 100 * SECOND).note is None


def test_without_events_the_row_s_totals_are_drawn_and_said_to_be_totals():
    timeline = timeline_of([], ROW, 100 * SECOND)

    assert phases(timeline) == [("pool", 0.5), ("prefill", 0.5), ("decode", 8)]
    assert "no longer stored" in timeline.note


def test_labels_that_would_overlap_are_left_out_and_the_end_is_kept():
    at = (0, 1, 50, 52, 99, 100)
    names = ("arrive", "admit", "preempt", "resume", "first token", "end")
    points = [Point(t * SECOND, name, "") for t, name in zip(at, names, strict=True)]

    assert point_labels(points) == ["arrive", "", "preempt", "", "", "end"]
