"""A missed target is evidence and makes a finding urgent; by itself it opens nothing."""

import pytest

from agent.targets.attainment import Attainment
from agent.targets.target import Target
from agent.triage.facts import BookFacts
from agent.triage.incidents import IncidentTracker
from agent.triage.judge import judge
from agent.triage.report import as_json, as_text
from agent.triage.severity import AT_FIRST, Severity, severity_of
from agent.triage.verdicts import Verdict
from grafana.alert_table import OF_VERDICTS
from tests.agent.factories_facts import END, NS, facts
from tests.agent.test_triage_rules import LEAKS

TTFT = Target("ttft", 0.99, 2.0)
MISSED = (Attainment(TTFT, 300, 200, 180), Attainment(TTFT, 3_600, 2_000, 1_990))
MET = (Attainment(TTFT, 300, 200, 200), Attainment(TTFT, 3_600, 2_000, 1_990))
FEW = (Attainment(TTFT, 300, 3, 0), Attainment(TTFT, 3_600, 2_000, 1_000))
LEAK = BookFacts(300.0, leaks=LEAKS)


def evidence(diagnosis, name):
    return next((each for each in diagnosis.headline.evidence if each.name == name), None)


def test_a_missed_target_is_evidence_with_its_window_and_how_fast_the_budget_goes():
    found = evidence(judge(facts(books=LEAK, targets=MISSED)), "missed_target_ttft")

    assert (found.value, found.unit) == (0.9, "ratio")
    assert (found.start_ns, found.end_ns) == (END - 300 * NS, END)
    assert found.text == (
        "target ttft p99 2s: 90.0% of 200 within it;"
        " error budget spent 10.0 times over 5m, 0.5 times over 1h"
    )


def test_it_makes_what_is_wrong_critical():
    calm = judge(facts(books=LEAK, targets=MET)).headline
    urgent = judge(facts(books=LEAK, targets=MISSED)).headline

    assert severity_of(calm) is Severity.WARNING
    assert severity_of(urgent) is Severity.CRITICAL
    assert calm.evidence == judge(facts(books=LEAK)).headline.evidence


def test_alone_it_opens_no_incident_and_changes_no_verdict():
    tracker = IncidentTracker()
    diagnosis = judge(facts(targets=MISSED))

    changes = [tracker.follow(diagnosis, END + at * NS) for at in range(0, 900, 10)]

    assert diagnosis.verdict is Verdict.HEALTHY
    assert not any(changes)
    assert evidence(diagnosis, "missed_target_ttft") is not None
    assert severity_of(diagnosis.headline) is Severity.WARNING


def test_a_healthy_engine_shows_the_targets_that_it_meets():
    text = as_text(judge(facts(targets=MET)))

    assert "target ttft p99 2s: 100.0% of 200 within it" in text
    assert text.startswith("engine-a: healthy (high confidence)")


def test_too_few_samples_are_missing_and_no_evidence():
    diagnosis = judge(facts(books=LEAK, targets=FEW))

    assert diagnosis.missing == {"target ttft p99 2s": "3 samples in 5m are too few"}
    assert evidence(diagnosis, "missed_target_ttft") is None
    assert as_json(diagnosis)["severity"] == "warning"


def test_the_text_says_how_urgent_it_is():
    assert as_text(judge(facts(books=LEAK, targets=MISSED))).startswith(
        "engine-a: pool_leak (high confidence, critical)"
    )


@pytest.mark.parametrize("alert", OF_VERDICTS, ids=lambda alert: alert.name)
def test_an_alert_is_as_severe_as_its_verdict(alert):
    assert alert.severity.value == AT_FIRST[Verdict(alert.runbook)].value
