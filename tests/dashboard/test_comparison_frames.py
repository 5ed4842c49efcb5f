"""A comparison in words and on its scale, out of what the agent's API answers with."""

from dataclasses import replace
from functools import cache

import pytest

from agent.baselines.compare import compare
from agent.baselines.document import comparison_document
from dashboard.frames.comparison import (
    amount,
    comparison_view,
    reasons,
    signed,
    where_view,
    window_words,
)
from dashboard.frames.status import Tone
from tests.agent.factories_baselines import series, side


def view_of(first, second):
    return comparison_view(comparison_document(compare(first, second)))


@cache
def slower():
    """Tokens come a fifth slower."""
    return view_of(side(series(1), "calm"), side(series(2, inter_token=0.06), "now"))


def named(view, label):
    return next(one for one in view.judged if one.label == label)


def test_what_is_worse_is_named_in_the_headline_with_its_change():
    view = slower()

    assert view.status.headline == "Worse: now is worse than calm"
    assert view.status.tone is Tone.BAD
    assert view.status.details == ("worse: inter-token p50 +20 %, inter-token p95 +20 %",)


def test_a_judged_metric_tells_its_interval_its_floor_and_what_would_have_been_seen():
    one = named(slower(), "Inter-token p50")

    assert (one.first, one.second, one.change, one.answer) == ("50 ms", "60 ms", "+20 %", "worse")
    assert one.notes == (
        "change +9.9 ms to +10 ms",
        "floor 5.0 ms",
        "one of 5.0 ms or more would have been seen",
    )


def test_an_interval_beyond_the_floor_stands_right_of_it_on_the_scale():
    view = slower()
    bar = named(view, "Inter-token p50").bar

    assert view.reach == 0.25
    assert bar.floor_low == pytest.approx(30, abs=0.1)  # a floor of 10 % of a reach of 25 %
    assert bar.floor_high == pytest.approx(70, abs=0.1)
    assert 70 < bar.low < bar.change < bar.high < 100


def test_a_change_beyond_the_scale_ends_at_its_edge():
    bar = named(view_of(side(series(1)), side(series(2, inter_token=0.2))), "Inter-token p50").bar

    assert (bar.low, bar.change, bar.high) == (100, 100, 100)


def test_a_metric_that_was_nought_before_has_no_place_on_a_scale_of_shares():
    one = named(view_of(side(series(1)), side(series(2, rejected=1))), "Rejected per request")

    assert one.bar is None
    assert one.change == "+0.1"
    assert one.answer == "worse"


def test_an_unknown_answer_gives_its_reasons_and_is_not_green():
    view = view_of(side(series(1)), side(series(2, arrived=20)))

    assert view.status.tone is Tone.UNKNOWN
    assert view.status.headline.startswith("Unknown: ")
    assert any("raffic differs" in line for line in view.status.details)
    marked = [row for row in view.traffic if row.differs]
    assert [(row.label, row.first, row.second) for row in marked] == [
        ("Arrivals per second", "1", "2")
    ]


def test_too_few_samples_are_said_instead_of_an_interval():
    one = named(view_of(side(series(1, num=3)), side(series(2, num=3))), "TTFT p50")

    assert one.answer == "unknown"
    assert len(one.notes) == 1
    assert one.bar is None


def test_settings_that_differ_stand_apart_from_those_that_do_not():
    changed = side(series(2), fingerprint={"max_batch": 24, "model": "m"})
    first = side(series(1), fingerprint={"max_batch": 16, "model": "m", "version": "0.9"})

    view = view_of(first, changed)

    rows = [(row.label, row.first, row.second) for row in view.configuration]
    assert rows == [("max batch", "16", "24"), ("version", "0.9", "not stated")]
    assert view.alike == "model m"


def test_what_was_left_out_of_a_side_is_counted():
    gapped = side(series(2))
    complete = replace(gapped.completeness, num_not_recorded=140, num_in_gaps=4, events_lost=51)

    view = view_of(side(series(1)), replace(gapped, completeness=complete))

    by_label = {row.label: row.second for row in view.windows}
    assert by_label["Recorded"] == "90 %"
    assert by_label["Intervals left out"].startswith("140 not recorded, 4 with losses")
    assert by_label["Events lost"] == "51"


@pytest.mark.parametrize("document", [{}, {"answer": "odd"}, {"first": 3, "second": 4}])
def test_an_answer_of_another_shape_is_refused(document):
    with pytest.raises((KeyError, TypeError)):
        comparison_view(document)


@pytest.mark.parametrize(
    ("value", "unit", "written"),
    [(None, "s", "—"), (0.05, "s", "50 ms"), (0.0123, "", "0.0123"), (12.3, "1/s", "12.3 per s")],
)
def test_values_carry_their_unit(value, unit, written):
    assert amount(value, unit) == written


def test_a_change_has_its_sign_and_none_has_none():
    assert [signed(value, "s") for value in (-0.01, 0.0, 0.01)] == ["-10 ms", "0 s", "+10 ms"]


def test_a_window_over_midnight_names_both_days():
    start = 1_790_000_400 * 10**9

    assert window_words(start, start + 3600 * 10**9).count("2026-09-21") == 1
    assert "2026-09-22" in window_words(start, start + 86_400 * 10**9)


def where_document(first, second):
    """Return a split of two parts, in seconds per request."""
    names = (("pool", "wait for blocks"), ("prefill", "admission to first token"))
    parts = [
        {"name": name, "label": label, "first": a, "second": b, "change": b - a}
        for (name, label), a, b in zip(names, first, second, strict=True)
    ]
    a, b = sum(first), sum(second)
    total = {"name": "ttft", "label": "mean TTFT", "first": a, "second": b, "change": b - a}
    sides = {"first": {"num_requests": 14_400}, "second": {"num_requests": 14_412}}
    return {"total": total, "parts": parts, "why_not": "", **sides}


def test_both_bars_of_where_the_time_went_have_the_longer_side_s_scale():
    view = where_view(where_document((0.0, 0.1), (0.2, 0.1)))

    assert [(part.first_width, round(part.second_width, 2)) for part in view.parts] == [
        (0, 66.67),
        (pytest.approx(33.33, abs=0.01), 33.33),
    ]
    assert (view.total.first, view.total.second, view.total.change) == (
        "100 ms",
        "300 ms",
        "+200 ms",
    )
    assert view.parts[0].change == "+200 ms"
    assert "14\u202f400 and 14\u202f412 requests" in view.note


def test_where_the_time_went_says_why_it_is_not_known():
    view = view_of(side(series(1, num=30)), side(series(2, num=30))).where

    assert view.parts == ()
    assert view.note.startswith("Not available: ")


def test_a_reason_that_a_metric_s_own_line_gives_is_not_repeated_above_the_table():
    document = {
        "why_unknown": ["traffic differs: arrivals", "TTFT p50: too short", "TTFT p95: too short"],
        "metrics": [
            {"label": "TTFT p50", "why_unknown": "too short"},
            {"label": "TTFT p95", "why_unknown": "too short"},
            {"label": "pool wait per request", "why_unknown": ""},
        ],
    }

    assert reasons(document) == [
        "traffic differs: arrivals",
        "not known, each for the reason in its line: TTFT p50, TTFT p95",
    ]
