"""Putting expressions together, and refusing those that would be wrong."""

import pytest

from agent.metrics import gpu, incidents
from agent.metrics import table as metrics
from grafana import queries


def test_a_rate_sums_over_the_chosen_engines():
    assert queries.per_second(metrics.WAIT_SECONDS, "class") == (
        'sum by (class) (rate(kvpulse_wait_seconds_total{engine=~"$engine"}[$__rate_interval]))'
    )


def test_a_gauge_can_be_narrowed_to_one_state():
    assert queries.total(metrics.KV_BLOCKS, state="free") == (
        'sum(kvpulse_kv_blocks{engine=~"$engine",state="free"})'
    )


def test_a_label_that_the_metric_lacks_is_refused():
    with pytest.raises(ValueError, match="reason"):
        queries.select(metrics.KV_BLOCKS, reason="queue_full")


def test_a_rate_of_a_gauge_is_refused():
    with pytest.raises(ValueError, match="gauge"):
        queries.per_second(metrics.KV_BLOCKS)


def test_a_quantile_of_a_counter_is_refused():
    with pytest.raises(ValueError, match="counter"):
        queries.quantile(metrics.PREEMPTIONS, 0.99)


def test_a_metric_of_the_machine_is_not_narrowed_to_engines():
    assert queries.largest(gpu.GPU_POWER, "instance, gpu") == (
        "max by (instance, gpu) (kvpulse_gpu_power_watts)"
    )


def test_series_that_held_once_keep_their_zeros_too():
    series = 'kvpulse_verdict{engine=~"$engine"}'

    assert queries.that_held(incidents.VERDICT, "engine", "verdict") == (
        f"max by (engine, verdict) ({series}) and "
        f"(max by (engine, verdict) (max_over_time({series}[$__range] @ end())) == 1)"
    )


def test_a_quantile_of_no_samples_is_no_value():
    assert queries.quantile(metrics.INTER_TOKEN, 0.5).endswith(" >= 0")
