"""Series, latencies and labelled counters: right tier, NULL as NaN, exact merges."""

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from agent.errors import UnknownMetricError
from agent.ledger.delta import LabelledRow
from agent.reads.reads import Reads, open_reads
from agent.store.store import Store
from tests.agent.factories_store import (
    NS,
    OFFSET,
    SHAPE,
    STREAM,
    chunk,
    delta,
    empty_store,
    latency,
    progress,
    rollup,
)

START = OFFSET


@pytest.fixture
def where(tmp_path: Path) -> str:
    return empty_store(tmp_path)


@pytest.fixture
def reads(where: str) -> Iterator[Reads]:
    opened = open_reads(where)
    yield opened
    opened.close()


def fill(where: str, **rows: object) -> int:
    with Store.open(where) as store:
        last = {"t_ns": 100_000 * NS, "chunks": (chunk(0, 1),), **rows}
        return store.writer(STREAM).commit(delta(1, **last), SHAPE, progress(1))


def test_a_value_nobody_measured_is_nan_and_not_zero(where: str, reads: Reads) -> None:
    key = fill(where, rollups=(rollup(1, 1, running=0), rollup(1, 2, waiting=3)), t_ns=3 * NS)

    series = reads.series(key, ["running", "waiting"], START, START + 100 * NS)

    assert series.tier_seconds == 1
    assert series.t_ns.tolist() == [OFFSET + NS, OFFSET + 2 * NS]
    assert series.values["running"][0] == 0
    assert math.isnan(series.values["running"][1])
    assert series.values["waiting"][1] == 3


def test_a_long_window_is_answered_from_a_coarser_tier(where: str, reads: Reads) -> None:
    rows = [rollup(tier, 0, steps=tier) for tier in (1, 10, 60, 3600)]
    key = fill(where, rollups=tuple(rows))

    steps = {
        seconds: reads.series(key, ["steps"], START, START + seconds * NS).values["steps"].tolist()
        for seconds in (100, 10_000, 100_000)
    }

    assert steps == {100: [1.0], 10_000: [10.0], 100_000: [60.0]}


def test_a_window_wider_than_the_run_does_not_coarsen_it(where: str, reads: Reads) -> None:
    with Store.open(where) as store:
        first = delta(1, t_ns=0)
        writer = store.writer(STREAM)
        writer.commit(first, SHAPE, progress(1))
        writer.commit(delta(2, t_ns=60 * NS, rollups=(rollup(1, 5, steps=2),)), SHAPE, progress(2))
        key = writer.run_key
    assert key is not None

    series = reads.series(key, ["steps"], 0, 2 * OFFSET)

    assert (series.tier_seconds, series.values["steps"].tolist()) == (1, [2.0])


def test_an_unknown_metric_is_refused_by_name(where: str, reads: Reads) -> None:
    key = fill(where)

    with pytest.raises(UnknownMetricError, match="no metric 'runing'; known are active_blocks"):
        reads.series(key, ["runing"], START, START + NS)
    with pytest.raises(UnknownMetricError, match="known are ttft"):
        reads.latencies(key, "x; DROP TABLE runs", START, START + NS)
    with pytest.raises(UnknownMetricError, match="known are rejected"):
        reads.labelled(key, "nothing", START, START + NS)


def test_a_window_without_rows_is_empty(where: str, reads: Reads) -> None:
    key = fill(where)

    assert len(reads.series(key, ["steps"], 0, 10).t_ns) == 0
    assert reads.latency_summary(key, "ttft", 0, 10) is None
    assert len(reads.latencies(key, "ttft", 0, 10).t_ns) == 0
    assert reads.series(999, ["steps"], START, START + NS).values["steps"].tolist() == []


def test_latency_quantiles_come_in_seconds(where: str, reads: Reads) -> None:
    key = fill(where, latencies=(latency(1, 4, "ttft", [NS, 2 * NS, 3 * NS]),), t_ns=9 * NS)

    series = reads.latencies(key, "ttft", START, START + 20 * NS)

    assert series.t_ns.tolist() == [OFFSET + 4 * NS]
    assert series.count.tolist() == [3]
    assert series.p50[0] == pytest.approx(2.0, rel=0.022)
    assert series.max[0] == 3.0


def test_a_summary_merges_every_interval_of_the_window_once(where: str, reads: Reads) -> None:
    rng = np.random.default_rng(11)
    seconds = {s: rng.lognormal(18, 1, 20).astype(int).tolist() for s in range(0, 200)}
    rows = [latency(1, s, "inter_token", values) for s, values in seconds.items()]
    for tier in (10, 60, 3600):
        for first in range(0, 200, tier):
            inside = [v for s in range(first, min(200, first + tier)) for v in seconds[s]]
            rows.append(latency(tier, first, "inter_token", inside))
    key = fill(where, latencies=tuple(rows))

    summary = reads.latency_summary(key, "inter_token", START + 3 * NS, START + 197 * NS)

    inside = np.array([v for s in range(3, 197) for v in seconds[s]])
    assert summary is not None
    assert summary.count == len(inside)
    assert summary.sum == pytest.approx(inside.sum() / NS)
    assert (summary.min, summary.max) == (inside.min() / NS, inside.max() / NS)
    for ratio, found in ((0.5, summary.p50), (0.95, summary.p95), (0.99, summary.p99)):
        exact = np.quantile(inside, ratio, method="inverted_cdf") / NS
        assert found == pytest.approx(exact, rel=0.0222)


def test_a_labelled_counter_that_did_not_move_is_zero_where_the_ledger_looked(
    where: str, reads: Reads
) -> None:
    rollups = tuple(rollup(1, second, steps=1) for second in (1, 2, 4))
    labelled = (
        LabelledRow(1, 1 * NS, "rejected", "queue_full", 5),
        LabelledRow(1, 4 * NS, "rejected", "exceeds_pool", 2),
    )
    key = fill(where, rollups=rollups, labelled=labelled, t_ns=5 * NS)

    series = reads.labelled(key, "rejected", START, START + 10 * NS)

    assert series.t_ns.tolist() == [OFFSET + s * NS for s in (1, 2, 4)]
    assert {label: values.tolist() for label, values in series.values.items()} == {
        "exceeds_pool": [0, 0, 2],
        "queue_full": [5, 0, 0],
    }


def test_a_family_that_starts_at_ten_seconds_is_read_there(where: str, reads: Reads) -> None:
    labelled = (LabelledRow(10, 0, "tenant_tokens", "a", 7),)
    key = fill(where, labelled=labelled, t_ns=5 * NS)

    series = reads.labelled(key, "tenant_tokens", START, START + 10 * NS)

    assert (series.tier_seconds, series.values["a"].tolist()) == (10, [7])
