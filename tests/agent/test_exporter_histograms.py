"""Re-counting exponential histograms into Prometheus buckets."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from agent.metrics.table import TABLE
from agent.rollups.histogram import Histogram
from agent.rollups.histogram_edges import (
    FIRST_TOKEN_EDGES,
    INTER_TOKEN_EDGES,
    REQUEST_EDGES,
    WAIT_EDGES,
)
from agent.rollups.rebucket import rebucket

DURATIONS = st.lists(st.integers(0, 10**13), max_size=60)


def histogram_of(durations_ns):
    histogram = Histogram()
    histogram.add(np.asarray(durations_ns, dtype=np.int64))
    return histogram


@given(DURATIONS)
def test_counts_never_fall_from_edge_to_edge_and_infinity_holds_all(durations_ns):
    counts = [count for _, count in rebucket(histogram_of(durations_ns), WAIT_EDGES).buckets]

    assert counts == sorted(counts)
    assert counts[-1] == len(durations_ns)


@given(DURATIONS, DURATIONS)
def test_no_bucket_ever_falls_as_samples_arrive(before, arriving):
    histogram = histogram_of(before)
    first = rebucket(histogram, WAIT_EDGES)
    histogram.add(np.asarray(arriving, dtype=np.int64))

    later = rebucket(histogram, WAIT_EDGES)

    assert all(b >= a for (_, a), (_, b) in zip(first.buckets, later.buckets, strict=True))


@given(DURATIONS)
def test_a_sample_is_miscounted_only_within_2_2_percent_of_an_edge(durations_ns):
    for edge, count in rebucket(histogram_of(durations_ns), WAIT_EDGES).buckets[:-1]:
        edge_ns = float(edge) * 1e9
        surely = sum(duration <= edge_ns / 1.022 for duration in durations_ns)
        at_most = sum(duration <= edge_ns * 1.022 for duration in durations_ns)
        assert surely <= count <= at_most


def test_the_sum_is_exact():
    bucketed = rebucket(histogram_of([1_000_000, 250_000_000]), WAIT_EDGES)

    assert math.isclose(bucketed.sum_seconds, 0.251)


def test_a_zero_wait_is_at_or_below_every_edge():
    assert rebucket(histogram_of([0]), WAIT_EDGES).buckets[0] == ("0.001", 1)


def test_edges_resolve_waits_of_milliseconds_and_hold_what_opentelemetry_advises():
    advised = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10}

    assert WAIT_EDGES[0] == 0.001
    assert advised <= set(FIRST_TOKEN_EDGES)


def test_every_histogram_resolves_from_a_millisecond_on():
    first = {metric.name: metric.edges[0] for metric in TABLE if metric.edges}

    assert len(first) > 10
    assert {name: edge for name, edge in first.items() if edge > 0.001} == {}


def test_the_edges_of_vllm_and_opentelemetry_are_among_ours():
    per_token = {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 80}
    per_request = {0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 7680}

    assert per_token <= set(INTER_TOKEN_EDGES)
    assert per_request <= set(REQUEST_EDGES)
