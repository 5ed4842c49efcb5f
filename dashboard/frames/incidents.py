"""Incidents in words: how bad, for how long, who has seen it, and how it ended."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from shlex import quote
from typing import Final

from agent.reads.incidents import IncidentRow, StoredIncident
from agent.triage.severity import AT_FIRST
from agent.triage.verdicts import Diagnosis, Verdict
from dashboard.formats import NANOSECONDS, clock, date_and_clock, moment, seconds, words
from dashboard.frames.status import RANKS, Tone, capitalised
from dashboard.frames.verdict import VerdictView, tone_of, tone_of_severity, verdict_view

Column = list[int | str | float | datetime | None]
ENDS: Final = {
    "cleared": "cleared",
    "engine_ended": "the engine's run ended",
    "engine_restarted": "the engine was started again",
    "engine_gone": "the engine stayed away for a day",
}


@dataclass(frozen=True, slots=True)
class IncidentView:
    """One incident as a list shows it."""

    key: int
    name: str
    tone: Tone
    engine: str
    sentence: str
    since: str
    action: str
    acknowledged: str


@dataclass(frozen=True, slots=True)
class IncidentDetail:
    """One incident in full: what it was when it opened, and what it is by the newest evidence."""

    title: str
    tone: Tone
    facts: list[tuple[str, str | None]]
    opening: VerdictView
    newest: VerdictView | None  # None: nothing has been written since it opened
    newest_title: str


def incident_view(row: IncidentRow, now_ns: int) -> IncidentView:
    """Return one incident in words; `now_ns` is the wall clock."""
    return IncidentView(
        key=row.key,
        name=words(row.verdict),
        tone=tone_of_row(row),
        engine=row.engine,
        sentence=capitalised(row.summary),
        since=since_words(row, now_ns),
        action="" if row.action == "none" else words(row.action),
        acknowledged=acknowledged_words(row),
    )


def tone_of_row(row: IncidentRow) -> Tone:
    """Return an incident's colour by its verdict; its evidence may make it worse by one."""
    try:
        verdict = Verdict(row.verdict)
    except ValueError:  # a newer agent wrote it
        return Tone.NOTICE
    return tone_of_severity(verdict, AT_FIRST[verdict])


def urgent_first(rows: Sequence[IncidentRow]) -> list[IncidentRow]:
    """Return open incidents, the worst colour first; alike ones stay in their order."""
    return sorted(rows, key=lambda row: RANKS[tone_of_row(row)])


def lasted_words(row: IncidentRow, now_ns: int) -> str:
    """Say how long it held, or has held by now."""
    return seconds(row.lasted_ns(now_ns) / NANOSECONDS)


def since_words(row: IncidentRow, now_ns: int) -> str:
    """Say since when it is open, or when it was."""
    length = lasted_words(row, now_ns)
    if row.is_open:
        return f"open for {length}, since {date_and_clock(row.opened_at_ns)}"
    return f"{length} from {date_and_clock(row.opened_at_ns)}; {end_words(row)}"


def bundle_command(key: int, *, store: str, default: str) -> str:
    """Return the command that packs an incident of this store; an address may hold a password."""
    command = f"kvpulse incident bundle {key}"
    if store == default:
        return command
    named = '"$KVPULSE_STORE"' if "://" in store else quote(store)
    return f"{command} --store {named}"


def end_words(row: IncidentRow) -> str:
    """Say how it ended."""
    reason = row.close_reason or ""
    return ENDS.get(reason, words(reason))


def acknowledged_words(row: IncidentRow) -> str:
    """Say who has seen it, when, and what they noted; empty where nobody has."""
    if row.acknowledged_at_ns is None:
        return ""
    note = f": {row.acknowledged_note}" if row.acknowledged_note else ""
    return f"by {row.acknowledged_by} at {date_and_clock(row.acknowledged_at_ns)}{note}"


def closed_table(rows: Sequence[IncidentRow], now_ns: int) -> dict[str, Column]:
    """Return the table of closed incidents by heading."""
    return {
        "No.": [row.key for row in rows],
        "Verdict": [words(row.verdict) for row in rows],
        "Engine": [row.engine for row in rows],
        "Opened": [moment(row.opened_at_ns) for row in rows],
        "Lasted": [lasted_words(row, now_ns) for row in rows],
        "Held up": [row.peak_impact for row in rows],
        "Ended": [end_words(row) for row in rows],
        "Acknowledged": [row.acknowledged_by for row in rows],
        "What": [capitalised(row.summary) for row in rows],
    }


def incident_detail(stored: StoredIncident, now_ns: int) -> IncidentDetail:
    """Return one incident in full."""
    row = stored.row
    opening = told_from(stored.opening, row.opened_as)
    newest = verdict_view(stored.diagnosis, stored.finding)
    return IncidentDetail(
        title=f"Incident {row.key}: {words(row.verdict)}, {row.engine}",
        tone=tone_of(stored.finding),
        facts=incident_facts(row, now_ns),
        opening=opening,
        newest=None if row.is_open and newest == opening else newest,
        newest_title=newest_title(stored),
    )


def told_from(diagnosis: Diagnosis, verdict: str) -> VerdictView:
    """Return a diagnosis told from its finding of a verdict."""
    findings = (diagnosis.headline, *diagnosis.contributing)
    ours = next((each for each in findings if each.verdict == verdict), None)
    return verdict_view(diagnosis, ours)


def newest_title(stored: StoredIncident) -> str:
    """Say of when the newest evidence is."""
    at = clock(stored.diagnosis.end_ns)
    return f"Newest evidence, of {at} UTC" if stored.row.is_open else f"At its last, {at} UTC"


def incident_facts(row: IncidentRow, now_ns: int) -> list[tuple[str, str | None]]:
    """Return its times, its worst, and who has seen it."""
    facts: list[tuple[str, str | None]] = [
        ("Engine", row.engine),
        ("Run", row.run_id),
        ("Opened", date_and_clock(row.opened_at_ns)),
        ("Open for" if row.is_open else "Lasted", lasted_words(row, now_ns)),
        ("Held last", date_and_clock(row.seen_at_ns)),
        ("At its worst", worst_words(row)),
        ("Acknowledged", acknowledged_words(row) or "by nobody"),
    ]
    if not row.is_open:
        facts.append(("Ended", end_words(row)))
    if row.opened_as != row.verdict:
        facts.append(("Opened as", words(row.opened_as)))
    return facts


def worst_words(row: IncidentRow) -> str:
    """Say what it cost when it cost most."""
    if not row.peak_impact:
        return "held up no sequence"
    return f"{row.peak_impact:.3g} sequences held up at {clock(row.peak_at_ns)} UTC"
