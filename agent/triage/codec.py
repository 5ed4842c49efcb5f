"""A diagnosis as stored text, and back: exact, and read as hostile input."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from agent.errors import StateError
from agent.triage.verdicts import Action, Confidence, Diagnosis, Evidence, Finding, Verdict


def encode_diagnosis(diagnosis: Diagnosis) -> str:
    """Return a diagnosis as JSON."""
    found = asdict(diagnosis)
    # A cause is one of the findings: kept as their numbers, not a second time.
    findings = [diagnosis.headline, *diagnosis.contributing]
    found["causes"] = [findings.index(cause) for cause in diagnosis.causes]
    return json.dumps(found, default=sorted)


def decode_diagnosis(stored: str) -> Diagnosis:
    """Return a diagnosis.

    Raises:
        StateError: The text is none.
    """
    try:
        found = json.loads(stored)
        findings = [_finding(each) for each in (found["headline"], *found["contributing"])]
        return Diagnosis(
            engine=found["engine"],
            run_id=found["run_id"],
            start_ns=int(found["start_ns"]),
            end_ns=int(found["end_ns"]),
            headline=findings[0],
            contributing=tuple(findings[1:]),
            missing=dict(found["missing"]),
            causes=tuple(findings[number] for number in found["causes"]),
        )
    except (ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
        raise StateError(f"a stored diagnosis cannot be read: {error}") from error


def _finding(found: Mapping[str, Any]) -> Finding:
    return Finding(
        verdict=Verdict(found["verdict"]),
        action=Action(found["action"]),
        confidence=Confidence(found["confidence"]),
        impact=float(found["impact"]),
        summary=found["summary"],
        advice=found["advice"],
        evidence=tuple(Evidence(**each) for each in found["evidence"]),
        opens_after_seconds=float(found["opens_after_seconds"]),
        casts_doubt=bool(found["casts_doubt"]),
        explains=frozenset(map(Verdict, found["explains"])),
    )
