"""A diagnosis as JSON and as text."""

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Final

from agent.triage.severity import Severity, severity_of
from agent.triage.verdicts import Confidence, Diagnosis, Finding, Verdict

RUNBOOK: Final = "docs/runbook.md"
NS: Final = 1_000_000_000


def runbook_of(verdict: Verdict) -> str:
    """Return where the runbook tells what to do."""
    return f"{RUNBOOK}#{verdict.value}"


def as_json(diagnosis: Diagnosis) -> dict[str, object]:
    """Return what a machine reads; the keys are API."""
    seconds = (diagnosis.end_ns - diagnosis.start_ns) / NS
    return {
        "engine": diagnosis.engine,
        "run_id": diagnosis.run_id,
        **finding_document(diagnosis.headline),
        "contributing": [finding_document(each) for each in diagnosis.contributing],
        "window": {
            "start": iso(diagnosis.start_ns),
            "end": iso(diagnosis.end_ns),
            "seconds": round(seconds, 3),
        },
        "missing": dict(diagnosis.missing),
    }


def unreached(why: str) -> dict[str, object]:
    """Return what a machine reads where the source was not reached."""
    return {
        "engine": None,
        "run_id": None,
        "verdict": Verdict.UNKNOWN.value,
        "confidence": Confidence.LOW.value,
        "severity": Severity.WARNING.value,
        "action": "none",
        "summary": why,
        "advice": "see that what was asked for exists and can be read, and that somebody writes it",
        "evidence": [],
        "runbook": runbook_of(Verdict.UNKNOWN),
        "contributing": [],
        "window": None,
        "missing": {"source": why},
    }


def as_text(diagnosis: Diagnosis) -> str:
    """Return what a person reads: the verdict first, then why, then what to do."""
    finding = diagnosis.headline
    seconds = (diagnosis.end_ns - diagnosis.start_ns) / NS
    urgency = "" if finding.verdict is Verdict.HEALTHY else f", {severity_of(finding).value}"
    sure = f"{finding.confidence.value} confidence{urgency}"
    lines = [
        f"{diagnosis.engine}: {finding.verdict.value} ({sure})",
        f"  {finding.summary}",
        "",
        f"  what to do  {finding.action.value}: {finding.advice}",
        f"  runbook     {runbook_of(finding.verdict)}",
        f"  window      {seconds:.0f} s up to {iso(diagnosis.end_ns)}",
    ]
    lines += _list("evidence", [each.text for each in finding.evidence])
    also = [f"{each.verdict.value}: {each.summary}" for each in diagnosis.contributing]
    lines += _list("also", also)
    lines += _list("not known", [f"{name}: {why}" for name, why in diagnosis.missing.items()])
    return "\n".join(lines)


def finding_document(finding: Finding) -> dict[str, Any]:
    """Return one finding as a machine reads it; the keys are API."""
    return {
        "verdict": finding.verdict.value,
        "confidence": finding.confidence.value,
        "severity": severity_of(finding).value,
        "action": finding.action.value,
        "summary": finding.summary,
        "advice": finding.advice,
        "impact_sequences": round(finding.impact, 3),
        "evidence": [asdict(each) for each in finding.evidence],
        "runbook": runbook_of(finding.verdict),
    }


def _list(title: str, texts: list[str]) -> list[str]:
    return [f"  {title if not i else '':<12}{text}" for i, text in enumerate(texts)]


def iso(at_ns: int) -> str:
    """Return a wall time as RFC 3339 has it, in UTC, to the millisecond."""
    return datetime.fromtimestamp(at_ns / NS, UTC).isoformat(timespec="milliseconds")
