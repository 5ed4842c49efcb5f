"""Series for charts: what is missing stays missing, and a rate is per second."""

import numpy as np

from agent.reads.models import LabelledSeries, LatencySeries, Series
from dashboard.frames.series import (
    Curves,
    amounts,
    gauges,
    peak_of,
    quantiles,
    rates,
    stretches,
    total_of,
    waits_per_second,
    window_of,
)

SECOND = 1_000_000_000


def series(seconds, tier=1, **values):
    t_ns = np.array(seconds, np.int64) * SECOND
    return Series(t_ns, {name: np.array(v, float) for name, v in values.items()}, tier)


def test_a_stretch_without_rows_breaks_the_curve():
    curves = gauges(series([10, 11, 12, 40, 41], active_blocks=[1, 2, 3, 4, 5]))

    assert np.isnan(curves.values["active_blocks"]).tolist() == [False] * 3 + [True] + [False] * 2
    assert curves.times[3] == np.datetime64(13_000, "ms")


def test_unbroken_stretches_are_found_for_filling():
    curves = gauges(series([10, 11, 12, 40, 41], active_blocks=[1, 2, 3, 4, 5]))

    assert stretches(curves, "active_blocks") == [slice(0, 3), slice(4, 6)]


def test_a_null_is_a_hole_and_not_a_zero():
    curves = gauges(series([1, 2, 3], active_blocks=[5, np.nan, 5]))

    assert stretches(curves, "active_blocks") == [slice(0, 1), slice(2, 3)]


def test_a_counter_over_ten_seconds_becomes_a_rate_per_second():
    curves = rates(series([10, 20], tier=10, arrived=[30, 50]), 30 * SECOND)

    assert curves.values["arrived"].tolist() == [3.0, 5.0]


def test_the_newest_interval_counts_only_the_time_that_has_passed():
    curves = rates(series([10, 20], tier=10, arrived=[30, 24]), 28 * SECOND)

    assert curves.values["arrived"].tolist() == [3.0, 3.0]


def test_a_second_that_is_not_over_is_left_out():
    curves = rates(series([10, 11], arrived=[3, 3]), 11 * SECOND + SECOND // 2)

    assert curves.values["arrived"].tolist() == [3.0]


def test_an_interval_that_has_just_begun_is_left_out():
    curves = rates(series([10, 20], tier=10, arrived=[30, 1]), 22 * SECOND)

    assert curves.values["arrived"].tolist() == [3.0]


def test_three_requests_waiting_for_a_second_are_three_seconds_per_second():
    zeros = {f"wait_{name}_ns": [0.0] for name in ("scheduler", "quota", "transfer")}

    curves = waits_per_second(series([5], wait_pool_ns=[3.0 * SECOND], **zeros), 6 * SECOND)

    assert curves.values["pool"].tolist() == [3.0]


def test_an_interval_without_a_sample_is_no_latency_of_zero():
    t_ns = np.array([1, 2, 3], np.int64) * SECOND
    zero = np.array([0.2, 0.0, 0.3])

    curves = quantiles(LatencySeries(t_ns, np.array([4, 0, 2]), zero, zero, zero, zero, 1))

    assert np.isnan(curves.values["p95"]).tolist() == [False, True, False]


def test_reasons_are_ordered_by_how_often_they_were_given_and_absent_ones_left_out():
    t_ns = np.array([1, 2], np.int64) * SECOND
    values = {"a": np.array([0.0, 1]), "b": np.array([2.0, 2]), "c": np.array([0.0, 0])}

    assert list(amounts(LabelledSeries(t_ns, values, 1)).values) == ["b", "a"]


def test_sums_and_peaks_of_nothing_are_not_measured():
    empty = series([1, 2], arrived=[np.nan, np.nan])

    assert total_of(empty, "arrived") is None
    assert peak_of(empty, "arrived") is None
    assert total_of(series([1, 2], arrived=[np.nan, 4]), "arrived") == 4


def test_a_window_ends_with_the_last_event_and_starts_no_earlier_than_the_run():
    window = window_of(started_at_ns=90 * SECOND, last_event_at_ns=100 * SECOND, seconds=300)

    assert (window.start_ns, window.end_ns) == (90 * SECOND, 100 * SECOND + 1)


def test_curves_of_holes_alone_are_empty():
    times = np.array([1], "datetime64[ms]")

    assert Curves(times, {"a": np.array([np.nan])}, 1).empty
    assert not Curves(times, {"a": np.array([0.0])}, 1).empty
