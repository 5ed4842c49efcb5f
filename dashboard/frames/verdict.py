"""Triage's answer as a page shows it: one sentence, the numbers behind it, and what to do."""

from dataclasses import dataclass
from typing import Final

from agent.triage.severity import Severity, severity_of
from agent.triage.verdicts import Diagnosis, Finding, Verdict
from dashboard.formats import NANOSECONDS, clock, long_seconds, words
from dashboard.frames.status import Tone, capitalised

# The words of severity as colours: red is for now, amber for today, grey for when there is time.
TONES: Final = {
    Severity.CRITICAL: Tone.BAD,
    Severity.WARNING: Tone.NOTICE,
    Severity.INFO: Tone.UNKNOWN,
}


@dataclass(frozen=True, slots=True)
class Also:
    """Another finding that holds."""

    name: str
    sentence: str
    tone: Tone


@dataclass(frozen=True, slots=True)
class VerdictView:
    """All that a page shows of a diagnosis.

    Attributes:
        is_calm: Nothing is wrong: it takes one quiet line.
        action: What to do first, in a word or two; empty where nothing is to be done.
        not_known: What could not be measured, and why.
    """

    verdict: Verdict
    name: str
    tone: Tone
    severity: str
    is_calm: bool
    sentence: str
    confidence: str
    window: str
    action: str
    advice: str
    evidence: tuple[str, ...]
    also: tuple[Also, ...]
    not_known: tuple[str, ...]


def verdict_view(diagnosis: Diagnosis, finding: Finding | None = None) -> VerdictView:
    """Return a diagnosis for a page, told from one of its findings; None: its headline."""
    found = finding or diagnosis.headline
    others = [each for each in (diagnosis.headline, *diagnosis.contributing) if each is not found]
    return VerdictView(
        verdict=found.verdict,
        name=words(found.verdict),
        tone=tone_of(found),
        severity=severity_of(found).value,
        is_calm=found.verdict is Verdict.HEALTHY,
        sentence=capitalised(found.summary),
        confidence=f"{found.confidence} confidence",
        window=window_words(diagnosis.start_ns, diagnosis.end_ns),
        action="" if found.action == "none" else words(found.action),
        advice=capitalised(found.advice),
        evidence=tuple(capitalised(each.text) for each in found.evidence),
        also=tuple(
            Also(words(each.verdict), capitalised(each.summary), tone_of(each)) for each in others
        ),
        not_known=tuple(f"{words(name)}: {why}" for name, why in diagnosis.missing.items()),
    )


def tone_of(finding: Finding) -> Tone:
    """Return a finding's colour."""
    return tone_of_severity(finding.verdict, severity_of(finding))


def tone_of_severity(verdict: Verdict, severity: Severity) -> Tone:
    """Return the colour of a verdict that is so severe; nothing wrong is green."""
    return Tone.GOOD if verdict is Verdict.HEALTHY else TONES[severity]


def window_words(start_ns: int, end_ns: int) -> str:
    """Say which time was judged."""
    whole = round((end_ns - start_ns) / NANOSECONDS)
    length = f"{whole} s" if whole < 120 else long_seconds(whole)
    return f"{length} up to {clock(end_ns)} UTC"
