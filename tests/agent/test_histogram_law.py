"""The histogram keeps its promises: error bound, exact merge, bytes that come back."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import HistogramError
from agent.rollups.histogram import NUM_BUCKETS, Histogram, bucket_edges, bucket_of

durations = st.lists(st.integers(0, 2**62), min_size=1, max_size=200)


def histogram_of(values: list[int]) -> Histogram:
    histogram = Histogram()
    histogram.add(np.array(values, np.int64))
    return histogram


@given(durations, st.sampled_from([0.01, 0.5, 0.95, 0.99, 1.0]))
def test_a_quantile_is_within_two_point_two_percent_of_the_true_one(values, ratio):
    true = sorted(values)[max(1, math.ceil(ratio * len(values))) - 1]

    estimate = histogram_of(values).quantile(ratio)

    assert abs(estimate - true) <= 0.022 * true


def test_every_edge_of_every_bucket_is_within_the_bound():
    for bucket in range(1, 16 * 62):
        low, high = bucket_edges(bucket)
        values = [math.ceil(low), max(math.ceil(low), math.ceil(high) - 1)]
        for value in values:
            estimate = histogram_of([1, value, 2**62]).quantile(0.5)
            assert abs(estimate - value) <= 0.022 * value


@given(durations, durations)
def test_merging_equals_adding_all_values_at_once(left, right):
    merged = histogram_of(left)
    merged.merge(histogram_of(right))
    both = histogram_of(left + right)

    assert (merged.counts == both.counts).all()
    assert (merged.count, merged.sum_ns) == (both.count, both.sum_ns)
    assert (merged.min_ns, merged.max_ns) == (both.min_ns, both.max_ns)
    assert merged.sum_ns == sum(left + right)


@given(st.lists(st.tuples(st.integers(0, 2**40), st.integers(1, 1000)), min_size=1, max_size=50))
def test_a_weight_stands_for_that_many_equal_values(pairs):
    weighted = Histogram()
    weighted.add(
        np.array([value for value, _ in pairs]), np.array([times for _, times in pairs], np.int64)
    )
    plain = histogram_of([value for value, times in pairs for _ in range(times)])

    assert (weighted.counts == plain.counts).all()
    assert (weighted.count, weighted.sum_ns) == (plain.count, plain.sum_ns)


@given(durations)
def test_bytes_come_back_as_the_same_histogram(values):
    histogram = histogram_of(values)

    again = Histogram.decode(
        histogram.encode(),
        sum_ns=histogram.sum_ns,
        min_ns=histogram.min_ns,
        max_ns=histogram.max_ns,
    )

    assert (again.counts == histogram.counts).all()
    assert again.count == histogram.count
    assert again.quantile(0.95) == histogram.quantile(0.95)


def test_a_count_above_127_takes_more_bytes_and_comes_back():
    histogram = Histogram()
    histogram.add(np.array([5_000_000]), np.array([1_000_000]))

    assert Histogram.decode(histogram.encode()).count == 1_000_000


@given(st.binary(max_size=300))
def test_damaged_bytes_are_refused_or_make_a_histogram_in_range(blob):
    try:
        histogram = Histogram.decode(b"\x01" + blob)
    except HistogramError:
        return
    assert len(histogram.counts) == NUM_BUCKETS


@pytest.mark.parametrize("blob", [b"", b"\x02\x01\x01", b"\x01\x81", b"\x01\x01", b"\x01" * 20000])
def test_bytes_of_another_shape_are_refused(blob):
    with pytest.raises(HistogramError):
        Histogram.decode(blob)


def test_zero_and_negative_durations_fall_into_the_first_bucket():
    assert bucket_of(np.array([-5, 0, 1, 2])).tolist() == [0, 0, 1, 17]
    assert histogram_of([0, 0, 0]).quantile(0.99) == 0.0
    assert Histogram().quantile(0.5) is None
