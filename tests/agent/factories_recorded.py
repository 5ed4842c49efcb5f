"""A store with hours of ten-second rows of one engine, as an agent would have written them."""

import tempfile
from functools import cache
from pathlib import Path

import numpy as np

from agent.store.store import Store
from tests.agent.factories_store import (
    NS,
    SHAPE,
    STREAM,
    chunk,
    delta,
    empty_store,
    latency,
    progress,
    rollup,
)

HOUR = 3600


def record(path, *, first, seconds=2 * HOUR, inter_token_ns=50_000_000, seq=0, seed=1):
    """Store ten-second rows of engine seconds [first, first + seconds)."""
    source = np.random.default_rng(seed)
    counters = dict.fromkeys(("retries", "rejected", "preempted", "recomputed_tokens"), 0)
    counters |= {"cancelled": 0, "prefix_hit_tokens": 0, "allocate_failures": 0}
    counters |= {"arrived": 10, "admitted": 10, "finished": 10, "steps": 100, "step_ns": NS}
    counters |= {"prefill_tokens": 10_000, "decode_tokens": 500, "wait_quota_ns": 0}
    counters |= {"wait_scheduler_ns": 0, "events_lost": 0}
    rows, histograms = [], []
    for second in range(first, first + seconds, 10):
        wait = int(source.exponential(NS))
        rows.append(rollup(10, second, **counters, wait_pool_ns=wait))
        ttft = NS * source.lognormal(0, 0.5, 10)
        gaps = inter_token_ns * source.lognormal(0, 0.1, 20)
        histograms.append(latency(10, second, "ttft", ttft.astype(np.int64)))
        histograms.append(latency(10, second, "inter_token", gaps.astype(np.int64)))
    at_ns = (first + seconds + 3) * NS
    with Store.open(path) as store:
        change = delta(
            seq + 1,
            t_ns=at_ns,
            rollups=tuple(rows),
            latencies=tuple(histograms),
            config={"max_batch": 16, "model": "m"},
            chunks=() if seq else (chunk(0, 1),),
        )
        writer = store.writer(STREAM)
        writer.commit(change, SHAPE, progress(seq + 1))
        writer.release()


@cache
def recorded_store():
    with tempfile.TemporaryDirectory() as folder:
        path = empty_store(Path(folder))
        record(path, first=0)
        return Path(path).read_bytes()
