"""Faults of time: a slow model, a wall clock that steps, a slow server."""

from itertools import pairwise
from statistics import median

from engine.clock import VirtualClock
from engine.faults.registry import build_faults, read_fault
from engine.faults.setup import FaultSetup
from kvpulse.events import ArriveWord, HeartbeatWord, Kind, StepWord
from tests.engine.factories_faults import CONFIG, records_of, run_with

SECOND = 1_000_000_000
EMPTY_STEP_NS = 10_000_000  # by the cost model of these runs


def wide(words, low):
    """Return a number of two payload words."""
    return words[low] | words[low + 1] << 32


def told_steps(run):
    return [step.step_ns for delta in run.stored.deltas for step in delta.clock_steps]


def compute_ns(words):
    return wide(words, StepWord.COMPUTE_LOW)


def test_steps_take_a_factor_longer_while_the_model_is_slow(tmp_path):
    run = run_with(tmp_path, "slow_step:factor=4,after_seconds=20,for_seconds=20")

    begin_ns, end_ns = (line["t_ns"] for line in run.truth)
    assert [line["factor"] for line in run.truth] == [4.0, 1.0]
    assert 20 * SECOND <= begin_ns < 23 * SECOND, "at the first step after that"
    assert 40 * SECOND <= end_ns < 41 * SECOND
    slow, normal = [], []
    for record, words in records_of(run.recorded.directory, Kind.STEP):
        (slow if begin_ns < record["ts_ns"] < end_ns else normal).append(compute_ns(words))
    assert min(slow) > 4 * 0.9 * EMPTY_STEP_NS > min(normal)
    assert median(slow) > 3 * median(normal)


def test_engine_time_passes_while_a_step_is_slow(tmp_path):
    run = run_with(tmp_path, "slow_step:factor=3", seconds=30)

    records = records_of(run.recorded.directory, Kind.STEP)
    times = [int(record["ts_ns"]) for record, _ in records]
    costs = [compute_ns(words) for _, words in records]
    between = [later - earlier for earlier, later in pairwise(times)]
    assert all(gap >= cost for gap, cost in zip(between, costs[1:], strict=True))


def test_the_wall_clock_steps_both_ways_and_durations_stay_what_they_were(tmp_path):
    run = run_with(tmp_path, "clock_step:step_seconds=3600,every_seconds=10,after_seconds=15")
    healthy = run_with(tmp_path / "healthy")

    steps = [line["step_ns"] for line in run.truth]
    assert steps[:4] == [3600 * SECOND, -3600 * SECOND, -3600 * SECOND, 3600 * SECOND]
    ahead_ns = [
        wide(words, HeartbeatWord.WALL_LOW) - wide(words, HeartbeatWord.MONOTONIC_LOW)
        for _, words in records_of(run.recorded.directory, Kind.HEARTBEAT)
    ]
    true_ns = ahead_ns[0]
    assert {ahead - true_ns for ahead in ahead_ns} == {0, 3600 * SECOND, -3600 * SECOND}
    assert told_steps(run) == steps
    assert told_steps(healthy) == []
    assert run.stored.latencies == healthy.stored.latencies
    assert run.stored.requests.keys() == healthy.stored.requests.keys()
    for owner, row in run.stored.requests.items():
        other = healthy.stored.requests[owner]
        assert (row.wait_ns, row.ended_ns) == (other.wait_ns, other.ended_ns)


def test_requests_are_held_between_server_and_engine_and_the_time_is_stated(tmp_path):
    run = run_with(tmp_path, "slow_frontend:delay_seconds=2,after_seconds=20", seconds=60)

    delays = sorted(line["delay_ns"] for line in run.truth)
    assert SECOND <= delays[0] <= delays[-1] <= 3 * SECOND
    arrivals = records_of(run.recorded.directory, Kind.ARRIVE)
    stated_us = [int(record["aux"]) - 1 for record, _ in arrivals if record["aux"]]
    unstated = [int(record["ts_ns"]) for record, _ in arrivals if not record["aux"]]
    assert 10 < len(stated_us) <= len(delays)
    assert min(stated_us) >= delays[0] // 1000
    assert max(stated_us) <= delays[-1] // 1000 + 100_000, "the engine looks between two steps"
    assert max(unstated) < 21 * SECOND
    assert arrivals[0][1][ArriveWord.PROMPT_TOKENS] > 0


def test_two_slow_frontends_hold_one_after_the_other():
    setup = FaultSetup(VirtualClock(), CONFIG)
    specs = [read_fault("slow_frontend:delay_seconds=1"), read_fault("slow_frontend:seed=3")]

    both = build_faults(specs, setup).frontend_delay_seconds()
    assert 1.0 <= both <= 3.0
