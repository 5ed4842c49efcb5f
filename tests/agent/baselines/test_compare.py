"""Comparisons of windows with a known difference between them."""

import time
from dataclasses import replace

import numpy as np
import pytest

from agent.baselines.compare import compare
from agent.baselines.comparison import Answer
from agent.baselines.metrics import JUDGED
from agent.baselines.side import Completeness
from agent.baselines.window_series import NS
from tests.agent.factories_baselines import series, side, without


def findings(comparison):
    return {finding.name: finding for finding in comparison.findings}


def test_two_windows_of_one_process_are_the_same():
    comparison = compare(side(series(1)), side(series(2)))

    assert comparison.answer is Answer.SAME
    assert {finding.answer for finding in comparison.findings} == {Answer.SAME}
    assert comparison.why_unknown == ()


@pytest.mark.parametrize(("factor", "answer"), [(1.2, Answer.WORSE), (0.8, Answer.BETTER)])
def test_decode_a_fifth_slower_is_worse_and_a_fifth_faster_is_better(factor, answer):
    comparison = compare(side(series(1)), side(series(2, inter_token=0.05 * factor)))

    assert comparison.answer is answer
    found = findings(comparison)["inter_token_p50"]
    assert found.answer is answer
    assert found.second / found.first == pytest.approx(factor, rel=0.01)
    assert found.low < found.second - found.first < found.high
    assert findings(comparison)["ttft_p95"].answer is Answer.SAME


def test_a_change_that_is_certain_and_below_the_floor_is_the_same():
    comparison = compare(side(series(1)), side(series(2, inter_token=0.05 * 1.06)))

    found = findings(comparison)["inter_token_p50"]
    assert found.low > 0
    assert found.answer is Answer.SAME
    assert found.smallest_seen == pytest.approx(0.1 * found.first)


def test_a_change_beyond_the_floor_that_may_be_chance_is_the_same():
    first = series(1, num=200, memory=0.5)
    comparison = compare(side(first), side(series(2, num=200, memory=0.5, ttft=1.12)))

    found = findings(comparison)["ttft_p95"]
    assert found.second - found.first > found.floor
    assert found.low < 0 < found.high
    assert found.answer is Answer.SAME
    assert found.smallest_seen > found.second - found.first


def test_a_series_that_remembers_too_long_is_unknown_and_says_how_much_would_do():
    comparison = compare(
        side(series(1, num=360, memory=0.97)), side(series(2, num=360, memory=0.97))
    )

    found = findings(comparison)["ttft_p50"]
    assert found.answer is Answer.UNKNOWN
    assert "compare at least" in found.why_unknown
    assert found.low is None
    assert comparison.answer is Answer.UNKNOWN
    assert findings(comparison)["inter_token_p50"].answer is Answer.SAME


def test_what_is_worse_outweighs_what_is_unknown():
    slow = series(2, num=360, memory=0.97, inter_token=0.065)

    assert compare(side(series(1, num=360, memory=0.97)), side(slow)).answer is Answer.WORSE


def test_too_few_requests_are_unknown_and_not_the_same():
    comparison = compare(side(series(1, num=12)), side(series(2, num=12)))

    assert comparison.answer is Answer.UNKNOWN
    assert "only 120 samples" in findings(comparison)["ttft_p95"].why_unknown


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"arrived": 12}, "arrivals per second"),
        ({"prefill_tokens": 13_000}, "prompt tokens"),
        ({"decode_tokens": 700}, "output tokens"),
        ({"prefill_tokens": 7_000, "prefix_hit_tokens": 3_000}, "prefix cache"),
    ],
)
def test_other_traffic_makes_any_answer_unknown_and_is_named(changes, named):
    comparison = compare(side(series(1)), side(series(2, inter_token=0.065, **changes)))

    assert comparison.answer is Answer.UNKNOWN
    assert comparison.measured is Answer.WORSE
    assert comparison.why_unknown[0].startswith("traffic differs")
    assert named in comparison.why_unknown[0]


def test_retries_follow_from_trouble_and_are_no_other_traffic():
    comparison = compare(side(series(1)), side(series(2, arrived=14, retries=4)))

    assert comparison.traffic_differences == ()


def test_intervals_that_are_not_counted_do_not_bend_the_figures():
    spoilt = series(2, arrived=10)
    spoilt.counters["wait_pool_ns"][100:300] = 1e15
    spoilt.counters["rejected"][300:320] = np.nan
    holed = without(spoilt, slice(100, 300))

    comparison = compare(side(series(1)), side(holed))

    assert comparison.answer is Answer.SAME
    assert comparison.second.completeness.num_not_recorded == 200


def test_a_window_mostly_missing_is_unknown():
    holed = without(series(2), slice(0, 400))

    comparison = compare(side(series(1)), side(holed, "b"))

    assert comparison.answer is Answer.UNKNOWN
    assert comparison.why_unknown == ("b: only 72% of it was recorded",)


def test_a_configuration_that_changed_inside_a_window_is_unknown():
    two = Completeness(1440, 0, 0, 0, num_configs=2)

    comparison = compare(side(series(1)), side(series(2), "b", completeness=two))

    assert comparison.why_unknown == ("b: its configuration changed inside the window",)


def test_settings_that_differ_are_named_and_do_not_change_the_answer():
    comparison = compare(side(series(1)), side(series(2), fingerprint={"max_batch": 32}))

    assert [(d.name, d.first, d.second) for d in comparison.config_differences] == [
        ("max_batch", 16, 32)
    ]
    assert comparison.answer is Answer.SAME


def test_the_first_rejections_ever_are_worse():
    source = np.random.default_rng(4)
    comparison = compare(side(series(1)), side(series(2, rejected=source.poisson(0.2, 1440))))

    assert findings(comparison)["rejection_ratio"].answer is Answer.WORSE


def test_what_was_counted_on_neither_side_may_still_happen_three_times_in_n():
    few = series(1, num=60)
    comparison = compare(side(few), side(series(2, num=60)))

    assert findings(comparison)["rejection_ratio"].smallest_seen == pytest.approx(3 / 600)


def test_a_metric_that_only_one_side_measures_is_unknown():
    blind = series(2)
    blind.counters["wait_pool_ns"][:] = np.nan

    found = findings(compare(side(series(1)), side(blind)))["pool_wait"]

    assert (found.answer, found.why_unknown) == (
        Answer.UNKNOWN,
        "not measured on the second side",
    )


def test_a_metric_that_neither_side_measures_is_left_out():
    sides = [series(1), series(2)]
    for one in sides:
        one.counters["wait_pool_ns"][:] = np.nan

    comparison = compare(side(sides[0]), side(sides[1]))

    assert "pool_wait" not in findings(comparison)
    assert comparison.answer is Answer.SAME


def test_an_engine_that_measured_nothing_is_unknown():
    nothing = series(1)
    for values in nothing.counters.values():
        values[:] = np.nan
    nothing = replace(nothing, latencies={})

    comparison = compare(side(nothing), side(nothing))

    assert comparison.answer is Answer.UNKNOWN
    assert comparison.why_unknown == ("no judged metric was measured",)


def test_a_finer_side_is_brought_to_the_tier_of_the_coarser():
    fine = series(2)
    coarse = series(1).coarsened(60)

    comparison = compare(side(coarse), side(fine))

    assert fine.coarsened(60).num_intervals == 240
    assert fine.coarsened(60).total("arrived") == fine.total("arrived")
    assert findings(comparison)["inter_token_p50"].block_seconds == 180
    assert comparison.answer is Answer.SAME


def test_the_same_windows_give_the_same_answer_again():
    first, second = side(series(1)), side(series(2))

    assert compare(first, second).findings == compare(first, second).findings


def test_four_hours_a_side_take_well_under_a_second():
    first, second = side(series(1)), side(series(2))

    began = time.thread_time()
    compare(first, second)

    assert time.thread_time() - began < 1.5  # 0.3 s where nobody else computes


def test_at_most_eight_metrics_are_judged():
    assert len(JUDGED) <= 8
    assert side(series(1, num=6)).series.end_ns - side(series(1, num=6)).series.start_ns == 60 * NS
