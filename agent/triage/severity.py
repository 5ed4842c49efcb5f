"""How soon a person has to look at a finding: what it is, and whether users get what they are to.

A missed target opens nothing by itself. Where something is wrong, it makes it urgent.
"""

from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Final

from agent.targets.attainment import WINDOWS_SECONDS, Attainment
from agent.triage.facts import Facts
from agent.triage.verdicts import Evidence, Finding, Verdict

NS: Final = 1_000_000_000
MISSED: Final = "missed_target_"  # begins the name of such evidence
MET: Final = "target_"
SOONEST: Final = WINDOWS_SECONDS[0]


class Severity(StrEnum):
    """How soon a person has to look. The values are API, and those of the alerts."""

    CRITICAL = "critical"  # now
    WARNING = "warning"  # today
    INFO = "info"  # when there is time


AT_FIRST: Final = {
    **dict.fromkeys(Verdict, Severity.WARNING),
    **dict.fromkeys(
        (Verdict.ENGINE_DOWN, Verdict.STALLED, Verdict.LIVELOCK, Verdict.LEDGER_BROKEN),
        Severity.CRITICAL,
    ),
    **dict.fromkeys(
        (Verdict.HEALTHY, Verdict.TENANT_QUOTA, Verdict.TRAFFIC_SHIFT, Verdict.UNKNOWN),
        Severity.INFO,
    ),
}


def severity_of(finding: Finding) -> Severity:
    """Return the severity of a finding: of its verdict, and one higher where a target is missed."""
    is_missed = any(each.name.startswith(MISSED) for each in finding.evidence)
    first = AT_FIRST[finding.verdict]
    if not is_missed:
        return first
    return Severity.WARNING if first is Severity.INFO else Severity.CRITICAL


def with_targets(finding: Finding, facts: Facts) -> Finding:
    """Return a finding with the targets missed now; a healthy one has those met as well."""
    is_healthy = finding.verdict is Verdict.HEALTHY
    told = [
        _evidence(facts, each)
        for each in facts.targets
        if each.window_seconds == SOONEST and (each.is_missed or is_healthy)
        if each.within_ratio is not None
    ]
    return replace(finding, evidence=(*finding.evidence, *told))


def unmeasured(targets: Sequence[Attainment]) -> dict[str, str]:
    """Return which targets cannot be judged, and why."""
    return {
        f"target {each.target.text}": f"{each.samples} samples in {each.window} are too few"
        for each in targets
        if each.within_ratio is None
    }


def _evidence(facts: Facts, now: Attainment) -> Evidence:
    longer = (a for a in facts.targets if a.target == now.target and a is not now)
    over = ", ".join(f"{_spent(each)} over {each.window}" for each in (now, *longer))
    text = (
        f"target {now.target.text}: {now.within_ratio:.1%} of {now.samples:,} within it;"
        f" error budget spent {over}"
    )
    name = (MISSED if now.is_missed else MET) + now.target.latency
    start_ns = facts.end_ns - now.window_seconds * NS
    return Evidence(name, round(now.within_ratio or 0, 4), "ratio", text, start_ns, facts.end_ns)


def _spent(each: Attainment) -> str:
    return "not known" if each.burn_rate is None else f"{each.burn_rate:.1f} times"
