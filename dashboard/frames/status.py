"""One engine's state in a sentence: recorded facts, ranked by how much they hurt.

This is a *status*, not a verdict: it names what is so, and leaves the cause to triage.
"""

from dataclasses import dataclass
from enum import StrEnum

from agent.head_of_line import HeadOfLine
from agent.reads.models import EngineRow, RunState
from agent.scraped.fingerprint import scrape_seconds
from dashboard.formats import count, date_and_clock, long_seconds, ratio, seconds, words

STALE_AFTER_SECONDS = 10.0
MISSED_LOOKS = 3  # at a metrics page


class Tone(StrEnum):
    """How a status is coloured; the words say the same."""

    GOOD = "good"
    NOTICE = "notice"
    BAD = "bad"
    UNKNOWN = "unknown"


RANKS = {Tone.BAD: 0, Tone.NOTICE: 1, Tone.UNKNOWN: 2, Tone.GOOD: 3}
WAIT_WORDS = {
    "pool": "blocks",
    "scheduler": "their turn (batch slots or token budget)",
    "quota": "their tenant's quota",
    "transfer": "a transfer",
}


@dataclass(frozen=True, slots=True)
class Facts:
    """What was recorded of one engine lately; `recent` is the last minute of its own time."""

    engine: EngineRow
    age_seconds: float | None  # wall-clock age of the agent's last commit
    recent_seconds: float
    waits_by_class: dict[str, float]  # seconds waited within the last few seconds
    oldest_wait_seconds: float | None
    arrived: float
    rejected: float
    rejected_by_reason: dict[str, float]
    preempted: float
    leaked_blocks: int
    head_of_line: HeadOfLine | None = None


@dataclass(frozen=True, slots=True)
class Status:
    """A headline, what else is so, and how bad it is."""

    headline: str
    details: tuple[str, ...]
    tone: Tone

    @property
    def rank(self) -> int:
        """Return a number to sort by: worst first."""
        return RANKS[self.tone]


def is_stale(engine: EngineRow, age_seconds: float | None) -> bool:
    """Return whether a run that should be live has not been heard of for a while."""
    most = max(STALE_AFTER_SECONDS, MISSED_LOOKS * scrape_seconds(engine.fingerprint))
    quiet = age_seconds is None or age_seconds > most
    return engine.state is RunState.LIVE and quiet


def status_of(facts: Facts) -> Status:
    """Return the status whose headline is the worst thing that is so."""
    findings = [finding for rule in RULES if (finding := rule(facts)) is not None]
    if not findings:
        findings = [calm(facts)]
    first, *others = findings
    details = (*advice(facts), *(text for text, _ in others), *numbers(facts))
    return Status(first[0], details, first[1])


Finding = tuple[str, Tone]


def advice(facts: Facts) -> tuple[str, ...]:
    """Say what to look at when what follows is not the present."""
    if is_stale(facts.engine, facts.age_seconds):
        return ("is `kvpulse agent` running?",)
    if facts.engine.state is not RunState.LIVE:
        return (f"last event {date_and_clock(facts.engine.last_event_at_ns)}",)
    return ()


def gone(facts: Facts) -> Finding | None:
    """Say that the engine no longer writes."""
    if facts.engine.state is RunState.DEAD:
        return ("The engine is gone: it ended without closing its journal", Tone.BAD)
    if facts.engine.state is RunState.FINISHED:
        return ("The engine has finished; this is its last window", Tone.UNKNOWN)
    if is_stale(facts.engine, facts.age_seconds):
        age = "ever" if facts.age_seconds is None else f"for {seconds(facts.age_seconds)}"
        return (f"Nothing new from the agent {age}: what follows is old", Tone.UNKNOWN)
    return None


def broken(facts: Facts) -> Finding | None:
    """Say that ledger and pool disagree."""
    failed = facts.engine.audits_failed
    if not failed:
        return None
    return (
        f"The pool's own account and the ledger differ: {count(failed)} audits failed",
        Tone.BAD,
    )


def leaking(facts: Facts) -> Finding | None:
    """Say that blocks outlived their owners."""
    if not facts.leaked_blocks:
        return None
    noun = "block is" if facts.leaked_blocks == 1 else "blocks are"
    return (
        f"{count(facts.leaked_blocks)} {noun} still active after their owner ended: references "
        "never released",
        Tone.BAD,
    )


def waiting(facts: Facts) -> Finding | None:
    """Say how many requests wait, for what, and how long the oldest has."""
    engine = facts.engine
    if not engine.waiting or engine.state is not RunState.LIVE:
        return None
    waited = {name: value for name, value in facts.waits_by_class.items() if value > 0}
    if not waited:
        return (f"Requests wait: {count(engine.waiting)} waiting", Tone.NOTICE)
    cause = max(waited, key=lambda name: waited[name])
    oldest = facts.oldest_wait_seconds
    parts = [f"{count(engine.waiting)} waiting"]
    if oldest is not None:
        parts.append(f"oldest {seconds(oldest)}")
    parts.append(f"pool {ratio(active_ratio(engine))} active")
    tone = Tone.BAD if cause == "pool" and (oldest or 0) >= 1 else Tone.NOTICE
    return (f"Requests wait for {WAIT_WORDS[cause]}: {', '.join(parts)}", tone)


def blocked(facts: Facts) -> Finding | None:
    """Say who is at the head of the line with runnable work behind it."""
    head = facts.head_of_line
    return None if head is None else (capitalised(head.sentence), Tone.NOTICE)


def capitalised(text: str) -> str:
    """Return a sentence with its first letter in upper case."""
    return text[:1].upper() + text[1:]


def refusing(facts: Facts) -> Finding | None:
    """Say how many requests were refused lately, and the commonest reason."""
    if not facts.rejected:
        return None
    reasons = facts.rejected_by_reason
    top = max(reasons, key=lambda name: reasons[name]) if reasons else None
    why = f", most often {words(top)}" if top else ""
    span = span_words(facts.recent_seconds)
    text = f"{count(facts.rejected)} of {count(facts.arrived)} requests refused in {span}{why}"
    return (text, Tone.NOTICE)


def preempting(facts: Facts) -> Finding | None:
    """Say how often running sequences lost their blocks lately."""
    if not facts.preempted:
        return None
    span = span_words(facts.recent_seconds)
    noun = "preemption" if facts.preempted == 1 else "preemptions"
    return (f"{count(facts.preempted)} {noun} in {span}", Tone.NOTICE)


RULES = (gone, broken, leaking, waiting, blocked, refusing, preempting)


def calm(facts: Facts) -> Finding:
    """Say what the engine does when nothing hurts."""
    engine = facts.engine
    if engine.running is None:
        return ("Nothing measured yet", Tone.UNKNOWN)
    if engine.running == 0:
        kept = engine.cached_blocks or 0
        return (f"Idle: no live sequence; {count(kept)} blocks kept cached, reclaimable", Tone.GOOD)
    return (f"Serving {count(engine.running)} sequences; nothing waits", Tone.GOOD)


def numbers(facts: Facts) -> tuple[str, ...]:
    """Return the plain numbers that stand beside every headline."""
    engine = facts.engine
    if engine.active_blocks is None:
        return ()
    swapped = f", {count(engine.swapped)} swapped out to the host" if engine.swapped else ""
    return (
        f"{count(engine.running)} running{swapped}",
        f"{count(engine.active_blocks)} of {count(engine.total_blocks)} blocks active"
        f" ({ratio(active_ratio(engine))}), {count(engine.cached_blocks)} cached,"
        f" {count(engine.free_blocks)} free",
    )


def active_ratio(engine: EngineRow) -> float | None:
    """Return which share of the pool is active."""
    if engine.active_blocks is None or not engine.total_blocks:
        return None
    return engine.active_blocks / engine.total_blocks


def span_words(span_seconds: float) -> str:
    """Return `the last minute` or the shorter stretch that there was."""
    whole = round(span_seconds)
    if whole == 60:
        return "the last minute"
    return f"the last {long_seconds(whole) if whole > 60 else f'{max(whole, 1)} s'}"
