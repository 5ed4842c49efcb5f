"""Coarser tiers are the finer ones merged, and an open interval replaces its earlier row."""

import numpy as np

from agent.ledger.intervals import Grid, interval_start
from agent.rollups.histogram import Histogram
from agent.rollups.labelled import LabelledRollups
from agent.rollups.latency import LatencyRollups, Samples
from agent.rollups.rollup import Rollups, blank_rows
from agent.rollups.scalars import COLUMN_INDEX, LATENCY_INDEX

SECOND = 1_000_000_000
ALLOCATED, ACTIVE = COLUMN_INDEX["allocated"], COLUMN_INDEX["active_blocks"]
LEAST, MOST = COLUMN_INDEX["active_blocks_min"], COLUMN_INDEX["active_blocks_max"]


def rows_of(active: list[int]) -> np.ndarray:
    rows = blank_rows(len(active))
    rows[:, ALLOCATED] = 1
    for column in (ACTIVE, LEAST, MOST):
        rows[:, column] = active
    return rows


def test_ten_seconds_sum_counters_and_keep_last_least_and_greatest():
    rollups = Rollups()
    rollups.add(np.arange(25) * SECOND, rows_of(list(range(25))))

    tens = {row.t_ns: row.values for row in rollups.take() if row.tier_seconds == 10}

    assert list(tens) == [0, 10 * SECOND, 20 * SECOND]
    values = tens[10 * SECOND]
    assert (values[ALLOCATED], values[ACTIVE], values[LEAST], values[MOST]) == (10, 19, 10, 19)
    assert values[COLUMN_INDEX["filled_slots"]] is None


def test_an_open_interval_is_handed_out_again_as_a_whole():
    rollups = Rollups()
    rollups.add(np.array([0]), rows_of([5]))
    rollups.take()
    rollups.add(np.array([0]), rows_of([3]))

    (row,) = [row for row in rollups.take() if row.tier_seconds == 1]

    assert (row.values[ALLOCATED], row.values[ACTIVE]) == (2, 3)
    assert (row.values[LEAST], row.values[MOST]) == (3, 5)
    assert rollups.take() == ()


def test_intervals_begin_at_whole_wall_seconds():
    assert interval_start(5 * SECOND, wall_offset_ns=300, tier_seconds=1) == 5 * SECOND - 300
    assert interval_start(15 * SECOND, wall_offset_ns=0, tier_seconds=10) == 10 * SECOND


def test_latencies_merge_over_takes_and_tiers_to_what_one_histogram_holds():
    rng = np.random.default_rng(1)
    rollups, whole = LatencyRollups(), Histogram()
    last = {}
    for start in range(0, 30, 3):
        values = rng.integers(1, 10**9, 40)
        seconds = np.sort(rng.integers(start, start + 3, 40)) * SECOND
        weights = rng.integers(1, 300, 40)
        metric = np.full(40, LATENCY_INDEX["ttft"])
        rollups.add(Samples(metric, seconds, values, weights))
        whole.add(values, weights)
        last.update(((row.tier_seconds, row.t_ns), row) for row in rollups.take())

    hour = last[3600, 0]
    assert hour.metric == "ttft"
    assert (hour.num_samples, hour.sum_ns) == (whole.count, whole.sum_ns)
    assert (hour.min_ns, hour.max_ns) == (whole.min_ns, whole.max_ns)
    assert (Histogram.decode(hour.histogram).counts == whole.counts).all()
    assert hour.p95_ns == int(whole.quantile(0.95))
    for tier in (1, 10, 60):
        parts = Histogram()
        for (of, _), row in last.items():
            if of == tier:
                parts.merge(Histogram.decode(row.histogram))
        assert (parts.counts == whole.counts).all()


def test_labels_add_up_and_gauges_stand_for_the_last():
    rollups = LabelledRollups()
    for second in range(12):
        rollups.add(
            second * SECOND, {("rejected", "queue_full"): 1, ("tenant_active_blocks", 3): second}
        )

    rows = {row[:4]: row.value for row in rollups.take(lambda tenant: f"tenant_{tenant}")}

    assert rows[10, 0, "rejected", "queue_full"] == 10
    assert rows[60, 0, "rejected", "queue_full"] == 12
    assert rows[10, 0, "tenant_active_blocks", "tenant_3"] == 9
    assert (1, 0, "tenant_active_blocks", "tenant_3") not in rows


def test_a_step_function_is_integrated_and_sampled_by_second():
    t_ns = np.array([500, 1_500, 3_200]) * 1_000_000
    grid = Grid.over(t_ns, before_ns=0, wall_offset_ns=0)
    after = np.array([4, 1, 7])

    assert grid.starts.tolist() == [0, SECOND, 2 * SECOND, 3 * SECOND]
    assert grid.integrals(after, 2).tolist() == [3 * SECOND, 5 * SECOND // 2, SECOND, SECOND // 5]
    assert grid.at_ends(after, 2).tolist() == [4, 1, 1, 7]
    least, most = grid.extremes(after, 2)
    assert (least.tolist(), most.tolist()) == ([2, 1, 1, 1], [4, 4, 1, 7])
