"""What facts are made of: the price of a step, how long nothing moved, and incidents over time."""

import numpy as np
import pytest

from agent.reads.models import ClockStep
from agent.triage.facts import BookFacts, TelemetryFacts, TrafficFacts
from agent.triage.incidents import Change, IncidentTracker
from agent.triage.judge import judge
from agent.triage.step_cost import StepWork, expected_seconds
from agent.triage.stillness import seconds_stuck, seconds_without_step
from agent.triage.verdicts import Action, Verdict
from tests.agent.factories_facts import END, NS, facts, lasting
from tests.agent.test_triage_rules import FULL, LEAKS, SHORT_OF_BLOCKS

PRICES = np.array([0.006, 1e-5, 2e-5, 2e-8])


def _work(seed: int, *, batch: int, number: int = 60, factor: float = 1.0) -> StepWork:
    source = np.random.default_rng(seed)
    steps = source.integers(50, 150, number).astype(float)
    decode = steps * source.integers(batch // 2, batch + 1, number)
    context = source.uniform(100, 300, number) * decode / steps
    work = np.column_stack([steps, source.uniform(0, 9_000, number), decode, steps * context])
    noise = source.normal(1.0, 0.05, number)
    return StepWork(work @ PRICES * noise * factor, work)


def test_a_larger_batch_is_not_slowness():
    past, now = _work(1, batch=8), _work(2, batch=48)

    expected = expected_seconds(past, now)

    assert expected is not None
    assert now.compute_seconds.sum() / expected == pytest.approx(1.0, abs=0.2)


def test_steps_three_times_as_long_are_told_though_a_part_of_the_past_was_slow_too():
    slow, fast = _work(3, batch=16, number=20, factor=3.0), _work(4, batch=16, number=40)
    past = StepWork(
        np.concatenate([fast.compute_seconds, slow.compute_seconds]),
        np.concatenate([fast.work, slow.work]),
    )

    expected = expected_seconds(past, slow)

    assert expected is not None
    assert slow.compute_seconds.sum() / expected == pytest.approx(3.0, abs=0.4)


def test_too_short_a_past_predicts_nothing():
    assert expected_seconds(_work(5, batch=8, number=5), _work(6, batch=8)) is None


def test_who_waits_without_anybody_let_in_is_stuck_since_the_last_admission():
    t_ns = np.arange(10, dtype=np.int64) * NS
    waiting, let_in = np.full(10, 3.0), np.array([1.0, 0, 2] + [0.0] * 7)

    assert seconds_stuck(t_ns, waiting=waiting, let_in=let_in, known_from_ns=0) == 7.0


def test_being_stuck_does_not_reach_back_across_a_gap():
    t_ns = np.arange(10, dtype=np.int64) * NS
    waiting, let_in = np.full(10, 3.0), np.zeros(10)

    assert seconds_stuck(t_ns, waiting=waiting, let_in=let_in, known_from_ns=6 * NS) == 4.0


def test_no_steps_without_live_sequences_is_no_standstill():
    t_ns = np.arange(4, dtype=np.int64) * NS
    still = seconds_without_step(
        t_ns, steps=np.zeros(4), live=np.zeros(4), known_from_ns=0, end_ns=4 * NS
    )

    assert still == 0.0


def _follow(tracker: IncidentTracker, seconds: range, **changes: object) -> list[tuple]:
    return [
        (change.change, change.incident.verdict, at)
        for at in seconds
        for change in tracker.follow(judge(facts(**changes)), END + at * NS)
        if change.change is not Change.UPDATED
    ]


def test_congestion_of_a_burst_opens_no_incident():
    tracker = IncidentTracker()
    burst = {"pool": FULL, "waits": SHORT_OF_BLOCKS, "lasting": lasting(SHORT_OF_BLOCKS)}

    assert _follow(tracker, range(0, 100, 10), **burst) == []


def test_minutes_that_end_with_the_window_know_nothing_of_the_time_before_the_run():
    young = lasting({"pool": 1_200.0}, known_seconds=60.0, arrived=60)
    old = lasting({"pool": 12_000.0})

    assert facts(lasting=young).lasting_wait_per_arrival("pool") == pytest.approx(2.0)
    assert facts(lasting=old).lasting_wait_per_arrival("pool") == pytest.approx(20.0)


def test_a_condition_opens_once_and_closes_a_minute_after_it_was_seen_last():
    tracker = IncidentTracker()
    minutes = lasting({"pool": 9_000.0})

    opened = _follow(tracker, range(0, 200, 10), pool=FULL, waits=SHORT_OF_BLOCKS, lasting=minutes)
    closed = _follow(tracker, range(200, 300, 10))

    assert opened == [(Change.OPENED, Verdict.POOL_EXHAUSTED, 30)]
    assert closed == [(Change.CLOSED, Verdict.POOL_EXHAUSTED, 250)]


def test_congestion_of_which_only_the_window_is_known_has_to_outlast_a_burst():
    tracker = IncidentTracker()

    opened = _follow(tracker, range(0, 400, 10), pool=FULL, waits=SHORT_OF_BLOCKS)

    assert opened == [(Change.OPENED, Verdict.POOL_EXHAUSTED, 300)]


def test_a_condition_that_lets_up_for_a_moment_stays_one_incident():
    tracker = IncidentTracker()
    leak = {"books": BookFacts(300.0, leaks=LEAKS)}

    changes = _follow(tracker, range(0, 60, 10), **leak)
    changes += _follow(tracker, range(60, 100, 10))
    changes += _follow(tracker, range(100, 200, 10), **leak)

    assert changes == [(Change.OPENED, Verdict.POOL_LEAK, 10)]


def test_an_incident_whose_cause_is_found_goes_on_under_its_name():
    tracker = IncidentTracker()
    _follow(tracker, range(0, 310, 10), pool=FULL, waits=SHORT_OF_BLOCKS)

    changes = _follow(
        tracker,
        range(310, 400, 10),
        pool=FULL,
        waits=SHORT_OF_BLOCKS,
        books=BookFacts(300.0, leaks=LEAKS),
    )

    assert changes == []
    assert list(tracker.open) == [Verdict.POOL_LEAK]
    assert tracker.open[Verdict.POOL_LEAK].opened_at_ns == END


def test_a_clock_that_was_set_is_a_note_and_nothing_wrong():
    steps = (ClockStep(END - 40 * NS, 3_600 * NS), ClockStep(END - 10 * NS, -3_600 * NS))
    known = (TelemetryFacts(9, 0, clock_steps=seen) for seen in (steps[:1], steps))

    one, two = (judge(facts(telemetry=each)) for each in known)

    assert one.headline.verdict is two.headline.verdict is Verdict.HEALTHY
    said = "the wall clock stepped by +3,600.0 s at 2026-09-21 14:12:40Z"
    assert one.headline.summary.endswith(f"500 of 1000 blocks active; {said}")
    assert two.headline.summary.endswith("-3,600.0 s at 2026-09-21 14:13:10Z, the last of 2 steps")
    assert two.headline.evidence[-1].value == [3600.0, -3600.0]
    assert two.headline.action is Action.NONE


def test_a_cause_that_flickers_beside_its_consequence_makes_no_second_incident():
    tracker = IncidentTracker()
    full = {"pool": FULL, "waits": SHORT_OF_BLOCKS, "lasting": lasting({"pool": 9_000.0})}
    shifted = {**full, "traffic": TrafficFacts(60, 40, 40, 0, mean_prompt_tokens=2_000.0)}

    changes = _follow(tracker, range(0, 60, 10), **full)
    changes += _follow(tracker, range(60, 80, 10), **shifted)
    changes += _follow(tracker, range(80, 200, 10), **full)

    assert changes == [(Change.OPENED, Verdict.POOL_EXHAUSTED, 30)]


def test_an_incident_whose_cause_is_over_goes_on_under_the_name_of_what_lasts():
    tracker = IncidentTracker()
    full = {"pool": FULL, "waits": SHORT_OF_BLOCKS, "lasting": lasting({"pool": 9_000.0})}
    shifted = {**full, "traffic": TrafficFacts(60, 40, 40, 0, mean_prompt_tokens=2_000.0)}

    changes = _follow(tracker, range(0, 60, 10), **shifted)
    changes += _follow(tracker, range(60, 200, 10), **full)

    assert changes == [(Change.OPENED, Verdict.TRAFFIC_SHIFT, 30)]
    assert list(tracker.open) == [Verdict.POOL_EXHAUSTED]
