"""Series and sides that state only what a test is about."""

from dataclasses import replace

import numpy as np

from agent.baselines.codec import ALL_COUNTERS
from agent.baselines.side import Completeness, Side
from agent.baselines.window_series import NS, BucketLines, WindowSeries
from agent.rollups.histogram import bucket_of

START_NS = 1_790_000_400 * NS
PER_INTERVAL = 10  # requests


def lines_of(samples):
    """Return histograms of [num_intervals, num_samples] durations in seconds."""
    buckets = bucket_of(np.asarray(samples) * 1e9)
    interval = np.repeat(np.arange(len(buckets)), buckets.shape[1])
    keys, counts = np.unique(interval * 1024 + buckets.ravel(), return_counts=True)
    return BucketLines(keys // 1024, keys % 1024, counts)


def series(seed, *, num=1440, ttft=1.0, inter_token=0.05, memory=0.0, **counters):
    """Return a window of 10 s intervals: lognormal latencies, 10 requests in each interval.

    `memory` is the correlation of neighbouring intervals' TTFT; counters are named per interval.
    """
    source = np.random.default_rng(seed)
    level = np.zeros(num)
    shocks = source.normal(size=num) * (1 - memory**2) ** 0.5
    for i in range(num):
        level[i] = memory * level[i - 1] + shocks[i] if i else source.normal()
    spread = np.exp(0.3 * level)[:, None]
    plain = {
        "arrived": PER_INTERVAL,
        "admitted": PER_INTERVAL,
        "finished": PER_INTERVAL,
        "prefill_tokens": 1_000 * PER_INTERVAL,
        "decode_tokens": 50 * PER_INTERVAL,
        "steps": 100,
        "step_ns": 5 * NS,
        "wait_pool_ns": source.exponential(NS, num),
    }
    values = dict.fromkeys(ALL_COUNTERS, 0) | plain | counters
    return WindowSeries(
        10,
        START_NS,
        np.ones(num, np.bool_),
        {
            name: np.broadcast_to(np.asarray(value, float), num).copy()
            for name, value in values.items()
        },
        {
            "ttft": lines_of(ttft * spread * source.lognormal(0, 0.5, (num, PER_INTERVAL))),
            "inter_token": lines_of(inter_token * source.lognormal(0, 0.1, (num, 50))),
            "e2e": lines_of(5 * source.lognormal(0, 0.3, (num, PER_INTERVAL))),
        },
    )


def side(one, label="a", **changes):
    """Return a side that was recorded without a gap."""
    left_out = int((~one.is_counted).sum())
    complete = Completeness(one.num_intervals, left_out, 0, 0)
    return replace(Side(label, "engine-a", one, complete, {"max_batch": 16}), **changes)


def without(one, chosen):
    """Return the series with some intervals not counted."""
    counted = one.is_counted.copy()
    counted[chosen] = False
    return replace(one, is_counted=counted)
