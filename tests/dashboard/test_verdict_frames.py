"""Triage's answer in words and colours, and the runbook's section that goes with it."""

from dataclasses import replace

import pytest

from agent.triage.judge import judge
from agent.triage.verdicts import Verdict
from dashboard.frames.status import Tone
from dashboard.frames.verdict import tone_of, verdict_view, window_words
from dashboard.runbook import runbook_section
from tests.agent.factories_facts import facts
from tests.agent.incidents.factories_incidents import leak_diagnosis

SECOND = 1_000_000_000


def test_a_leak_is_told_with_its_numbers_and_what_to_do():
    view = verdict_view(leak_diagnosis(7, 8))

    assert (view.name, view.tone, view.is_calm) == ("pool leak", Tone.NOTICE, False)
    assert view.severity == "warning"
    assert view.sentence.startswith("References never released: 2 blocks")
    assert view.confidence == "high confidence"
    assert view.evidence[0] == "2 blocks leaked: 7, 8"
    assert view.action == "fix code"
    assert view.advice.startswith("Find the path")


def test_a_healthy_engine_asks_for_nothing():
    view = verdict_view(judge(facts()))

    assert (view.verdict, view.tone, view.is_calm) == (Verdict.HEALTHY, Tone.GOOD, True)
    assert view.action == ""


def test_another_finding_of_a_diagnosis_can_be_told_with_the_headline_beside_it():
    diagnosis = leak_diagnosis(7)
    other = judge(facts()).headline

    view = verdict_view(diagnosis, other)

    assert view.verdict is Verdict.HEALTHY
    assert [each.name for each in view.also] == ["pool leak"]


@pytest.mark.parametrize(
    ("verdict", "tone"),
    [
        (Verdict.HEALTHY, Tone.GOOD),
        (Verdict.ENGINE_DOWN, Tone.BAD),
        (Verdict.STALLED, Tone.BAD),
        (Verdict.POOL_LEAK, Tone.NOTICE),
        (Verdict.POOL_EXHAUSTED, Tone.NOTICE),
        (Verdict.UNKNOWN, Tone.UNKNOWN),
    ],
)
def test_red_is_for_now_amber_for_today_grey_for_when_there_is_time(verdict, tone):
    finding = replace(leak_diagnosis().headline, verdict=verdict)

    assert tone_of(finding) is tone


def test_a_missed_target_makes_a_finding_red():
    leak = leak_diagnosis().headline
    missed = replace(leak.evidence[0], name="missed_target_ttft")

    assert tone_of(replace(leak, evidence=(*leak.evidence, missed))) is Tone.BAD


def test_a_window_says_its_length_and_end():
    end = 1_790_000_400 * SECOND

    assert window_words(end - 60 * SECOND, end) == "60 s up to 14:20:00 UTC"
    assert window_words(end - 7_200 * SECOND, end) == "2 h 00 min up to 14:20:00 UTC"


@pytest.mark.parametrize("verdict", Verdict)
def test_the_runbook_has_a_section_for_each_verdict(verdict):
    section = runbook_section(verdict)

    assert section is not None
    assert "**Now**" in section
    assert "## " not in section
    assert "](" not in section  # a link to a file leads nowhere from a page


def test_without_a_runbook_there_is_no_section(tmp_path):
    assert runbook_section(Verdict.STALLED, tmp_path / "absent.md") is None
    (tmp_path / "other.md").write_text("# Runbook\n\n## stalled_twice\n\ntext\n")
    assert runbook_section(Verdict.STALLED, tmp_path / "other.md") is None
