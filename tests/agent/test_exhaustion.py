"""Time to exhaustion is a range over slopes, or unknown; what may still be needed is added up."""

from dataclasses import replace
from pathlib import Path

import pytest

from agent.exhaustion import AvailableBlocks, Exhaustion
from agent.metrics.engine_samples import samples_of
from agent.price import Price
from tests.agent.factories_ledger import follow
from tests.agent.factories_live import NOW_NS, SECOND, live_engine, live_state
from tests.agent.factories_stream import ToyEngine


def fed(*available: int | None, num_gaps: int = 0, every: int = 1) -> AvailableBlocks:
    """Give one value a second."""
    blocks = AvailableBlocks()
    for second, value in enumerate(available):
        blocks.add(second * every * SECOND, value, total=1_000, num_gaps=num_gaps)
    return blocks


def test_a_steady_fall_has_one_answer() -> None:
    assert fed(*range(1_000, 930, -1)).estimate() == Exhaustion(931.0, 931.0)


def test_a_burst_and_the_trend_behind_it_are_the_range() -> None:
    slow = list(range(1_000, 950, -1))  # one a second for 50 s
    burst = [951 - 10 * second for second in range(1, 12)]  # then ten a second for 11 s

    left = fed(*slow, *burst).estimate()

    assert left is not None
    assert left.least_seconds == pytest.approx(841 / 10)
    assert left.most_seconds is not None
    assert left.most_seconds == pytest.approx(841 * 60 / 159)


def test_a_fall_after_a_rise_has_no_end_to_its_range() -> None:
    left = fed(*[500] * 20, *[900] * 30, *range(900, 889, -1)).estimate()

    assert left is not None
    assert left.least_seconds == 890.0
    assert left.most_seconds is None


def test_a_rise_never_exhausts() -> None:
    assert fed(*range(100, 130)).estimate() == Exhaustion(None, None)


def test_nothing_left_is_now() -> None:
    assert fed(*[0] * 15).estimate() == Exhaustion(0.0, 0.0)


@pytest.mark.parametrize("values", [(), (100,) * 10, (100,) * 15 + (None,)])
def test_too_little_is_not_known(values: tuple[int | None, ...]) -> None:
    assert fed(*values).estimate() is None


@pytest.mark.parametrize("change", [{"num_gaps": 1}, {"total": 900}])
def test_nothing_is_compared_across_a_gap_or_another_pool(change: dict[str, int]) -> None:
    blocks = fed(*range(1_000, 930, -1))

    blocks.add(100 * SECOND, 500, **{"total": 1_000, "num_gaps": 0, **change})

    assert blocks.estimate() is None


def test_many_commits_a_second_keep_a_minute_and_a_bound() -> None:
    blocks = AvailableBlocks()
    for commit in range(4 * 600):
        blocks.add(commit * SECOND // 4, 10_000 - commit, total=10_000, num_gaps=0)

    assert len(blocks._samples) <= 4 * 60 + 2
    assert blocks.estimate() == Exhaustion(7_601 / 4, 7_601 / 4)


def test_what_live_sequences_may_still_take(tmp_path: Path) -> None:
    engine = ToyEngine(tmp_path)  # prompts of 100 and up to 50 more tokens: 10 blocks of 16
    first, second = engine.arrive(), engine.arrive()
    for sequence, blocks in ((first, 3), (second, 7)):
        engine.admit(sequence)
        engine.allocate(sequence, blocks)
    engine.clock.now_ns += SECOND
    engine.pool()
    ledger, _ = follow(engine.recorder.directory)

    live = ledger.live()

    assert (live.gauges["blocks_needed"], live.largest_blocks_needed) == (7 + 3, 7)
    engine.recorder.close()


def test_they_are_exported_where_they_are_known() -> None:
    live = live_state(gauges={"blocks_needed": 12}, largest_blocks_needed=9)
    engine = live_engine(live, exhaustion=Exhaustion(4.0, None))

    given = {(s.metric.name, *s.labels): s.value for s in samples_of(engine, NOW_NS, Price(2.304))}
    unknown = {s.metric.name for s in samples_of(replace(engine, exhaustion=None), NOW_NS)}

    assert given["kvpulse_kv_still_needed_blocks", "total"] == 12
    assert given["kvpulse_kv_still_needed_blocks", "largest"] == 9
    assert given["kvpulse_kv_exhaustion_seconds", "least"] == 4.0
    assert ("kvpulse_kv_exhaustion_seconds", "most") not in given
    assert given["kvpulse_kv_block_second_cost",] == pytest.approx(0.00001)
    assert not {"kvpulse_kv_exhaustion_seconds", "kvpulse_kv_block_second_cost"} & unknown
