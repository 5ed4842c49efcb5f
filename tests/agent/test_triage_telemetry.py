"""What triage says when an engine is gone, or when too little of what it did is known."""

import pytest

from agent.reads.models import GapRow, Leak, RunState
from agent.triage.facts import BookFacts, PoolFacts, QueueFacts, RunFacts, TelemetryFacts
from agent.triage.judge import judge
from agent.triage.verdicts import Verdict
from tests.agent.factories_facts import END, NS, facts, latency

FULL = PoolFacts(1_000, 1_000, active=995, cached=0, free=5, available_ratio=0.01)
SHORT_OF_BLOCKS = {"pool": 3_000.0, "pool_behind": 600.0}
LEAKS = tuple(Leak(block, 7, END - 30 * NS, None) for block in (3, 4))


def test_a_dead_engine_is_down_whatever_it_left_behind():
    run = RunFacts("engine-a", "run-1", 1, RunState.DEAD, END - 3_600 * NS, END)

    found = judge(facts(run=run, books=BookFacts(300.0, leaks=LEAKS)))

    assert found.verdict is Verdict.ENGINE_DOWN


def test_t7_what_is_old_is_not_drawn_as_the_present():
    telemetry = TelemetryFacts(10_000, 0, commit_age_seconds=90.0)

    found = judge(facts(pool=FULL, waits=SHORT_OF_BLOCKS, telemetry=telemetry))

    assert found.verdict is Verdict.TELEMETRY_INCOMPLETE
    assert found.contributing == ()


def test_lost_events_are_told_with_their_number():
    gap = GapRow(5, 9, END - 20 * NS, END - 18 * NS, "not_written", {"step": 30, "free": 10})
    telemetry = TelemetryFacts(9_960, 40, gaps=(gap,), commit_age_seconds=0.2)

    found = judge(facts(telemetry=telemetry))

    assert found.verdict is Verdict.TELEMETRY_INCOMPLETE
    assert "40 events lost" in found.headline.summary


@pytest.mark.parametrize(
    ("lost", "verdict"),
    [(50, Verdict.POOL_EXHAUSTED), (2_000, Verdict.TELEMETRY_INCOMPLETE)],
)
def test_what_was_measured_leads_only_where_nearly_all_of_it_is_known(lost, verdict):
    gap = GapRow(5, 9, END - 20 * NS, END - 18 * NS, "not_written", {"step": lost})
    telemetry = TelemetryFacts(10_000 - lost, lost, gaps=(gap,), commit_age_seconds=0.2)

    found = judge(facts(pool=FULL, waits=SHORT_OF_BLOCKS, telemetry=telemetry))

    assert found.verdict is verdict


def test_users_who_wait_for_no_known_reason_make_it_unknown():
    found = judge(facts(latencies={"ttft": latency(30.0)}))

    assert found.verdict is Verdict.UNKNOWN
    assert "30.00 s at the 95th percentile" in found.headline.summary


def test_an_engine_of_which_nothing_is_stored_is_unknown():
    found = judge(facts(pool=None, steps=None, missing={"rollups": "nothing is stored"}))

    assert found.verdict is Verdict.UNKNOWN
    assert found.headline.summary == "nothing is stored"


@pytest.mark.parametrize(
    ("live", "agent_age", "verdict"),
    [
        (10, 1.0, Verdict.STALLED),
        (0, 1.0, Verdict.TELEMETRY_INCOMPLETE),  # nobody waits for it, and nobody can tell
        (10, None, Verdict.TELEMETRY_INCOMPLETE),  # the agent is not there either
        (10, 40.0, Verdict.TELEMETRY_INCOMPLETE),
    ],
)
def test_a_silent_engine_is_stalled_where_an_agent_reads_it_and_somebody_is_live(
    live, agent_age, verdict
):
    queue = QueueFacts(waiting=0, running=live, live=live, max_batch=48)
    telemetry = TelemetryFacts(9_000, 0, commit_age_seconds=40.0, agent_age_seconds=agent_age)

    found = judge(facts(queue=queue, pool=FULL, waits=SHORT_OF_BLOCKS, telemetry=telemetry))

    assert found.verdict is verdict
    assert found.contributing == ()
