"""The drill: real engines with faults, followed and judged through journal, ledger and store."""

import pytest

from agent.drill.follow import Look, Lost
from agent.drill.outcome import assess, could_be_told, summary
from agent.drill.run import run_scenario
from agent.drill.scenario import CASES, Scenario, Traffic, faulted, healthy
from agent.triage.facts import BookFacts
from agent.triage.judge import judge
from agent.triage.verdicts import Verdict
from tests.agent.factories_facts import facts
from tests.agent.test_triage_rules import LEAKS

BEGINS = 150.0


def _short(fault: str) -> Scenario:
    traffic = Traffic(0.6, BEGINS + 100.0, seed=5)
    return Scenario(f"{fault}-short", traffic, (CASES[fault],), BEGINS, watched_seconds=80.0)


@pytest.mark.parametrize("fault", ["leak_on_cancel", "stall_admission", "slow_step"])
def test_a_fault_is_found_with_its_own_verdict(fault):
    outcome = run_scenario(_short(fault))

    assert outcome.missed is None
    assert outcome.forbidden == ()
    assert outcome.false_alarms == ()
    assert outcome.seconds_to_verdict is not None


def test_an_engine_killed_in_the_middle_is_down():
    outcome = run_scenario(_short("engine_crash"))

    assert outcome.verdict is Verdict.ENGINE_DOWN


def test_leaks_are_held_against_the_truth_block_by_block():
    scenario = _short("leak_slow")
    look = Look(BEGINS + 60.0, judge(facts(books=BookFacts(300.0, leaks=LEAKS))))
    act = {"fault": "leak_slow", "t_ns": int((BEGINS + 10) * 1e9), "owner": 7}

    right = assess(scenario, [look], [{**act, "blocks": [3, 4]}], [])
    wrong = assess(scenario, [look], [{**act, "blocks": [3, 5]}], [])

    assert right.missed is None
    assert wrong.missed == "leaked_blocks: [5] not named, [4] are none"


@pytest.mark.parametrize(
    ("lost", "told"),
    [
        ([], True),
        ([Lost(90.0, 97.0)], False),  # it began within a gap, and its grace began after that
        ([Lost(96.0, 97.0), Lost(98.0, 99.0)], False),
        ([Lost(94.0, 94.5)], True),
        ([Lost(50.0, 99.5), Lost(99.8, 99.9)], False),
    ],
)
def test_a_leak_has_to_be_named_only_once_its_grace_has_passed_without_a_gap(lost, told):
    look = Look(100.0, judge(facts()), tuple(lost))

    assert could_be_told(95.0, look) is told


def test_a_healthy_answer_to_a_fault_is_a_miss_and_forbidden():
    outcome = assess(_short("slow_step"), [Look(BEGINS + 60.0, judge(facts()))], [], [])

    answer = summary([outcome])
    assert outcome.forbidden == ("healthy",)
    assert [each["run"] for each in answer["missed"]] == ["slow_step-short"]
    assert answer["matrix"] == {"slow_step": {"healthy": 1}}


def test_each_fault_has_three_loads_and_two_seeds_after_ten_healthy_minutes():
    scenarios = list(faulted())

    assert len(scenarios) == len(CASES) * 6
    assert min(each.begins_seconds for each in scenarios) >= 600.0
    assert sum(each.traffic.seconds * each.runs for each in healthy(4.0)) >= 20 * 3_600
