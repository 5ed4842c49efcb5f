"""Triage's answer as a page shows it: one sentence, the numbers behind it, and what to do."""

from dataclasses import dataclass
from typing import Final

from agent.triage.verdicts import Diagnosis, Finding, Verdict
from dashboard.formats import NANOSECONDS, clock, long_seconds, words
from dashboard.frames.status import Tone, capitalised

# What makes every other number doubtful, or gets worse by itself: it is red whatever it costs now.
ACT_NOW: Final = frozenset(
    {
        Verdict.ENGINE_DOWN,
        Verdict.STALLED,
        Verdict.LIVELOCK,
        Verdict.LEDGER_BROKEN,
        Verdict.POOL_LEAK,
    }
)
NOT_KNOWN: Final = frozenset({Verdict.UNKNOWN, Verdict.TELEMETRY_INCOMPLETE})
HURTS_FROM: Final = 1.0  # sequences held up on average


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
        tone=tone_of(found.verdict, found.impact),
        is_calm=found.verdict is Verdict.HEALTHY,
        sentence=capitalised(found.summary),
        confidence=f"{found.confidence} confidence",
        window=window_words(diagnosis.start_ns, diagnosis.end_ns),
        action="" if found.action == "none" else words(found.action),
        advice=capitalised(found.advice),
        evidence=tuple(capitalised(each.text) for each in found.evidence),
        also=tuple(
            Also(words(each.verdict), capitalised(each.summary), tone_of(each.verdict, each.impact))
            for each in others
        ),
        not_known=tuple(f"{words(name)}: {why}" for name, why in diagnosis.missing.items()),
    )


def tone_of(verdict: Verdict, impact: float) -> Tone:
    """Return how a verdict is coloured: red is to be acted on now, amber is to be looked at."""
    if verdict is Verdict.HEALTHY:
        return Tone.GOOD
    if verdict in ACT_NOW:
        return Tone.BAD
    if verdict in NOT_KNOWN:
        return Tone.UNKNOWN
    return Tone.BAD if impact >= HURTS_FROM else Tone.NOTICE


def window_words(start_ns: int, end_ns: int) -> str:
    """Say which time was judged."""
    whole = round((end_ns - start_ns) / NANOSECONDS)
    length = f"{whole} s" if whole < 120 else long_seconds(whole)
    return f"{length} up to {clock(end_ns)} UTC"
