"""Telemetry health in tiles and tables: can the other pages be believed?"""

from collections.abc import Iterable, Mapping, Sequence

from agent.reads.broken_laws import BrokenLaw
from agent.reads.models import EngineRow, GapRow, KindTotal, RunState, TelemetryHealth
from agent.scraped.fingerprint import is_scraped
from dashboard.formats import count, date_and_clock, nanoseconds, num_bytes, ratio, seconds, words
from dashboard.frames.status import Status, Tone
from dashboard.frames.strip import Tile
from kvpulse.events import UNKNOWN_OWNER


def headline(engine: EngineRow, health: TelemetryHealth, *, stale: bool) -> Status:
    """Return one sentence: whether what was stated has arrived, and adds up."""
    if is_scraped(engine.fingerprint):
        told = "its looks are stored; it states no events, and nothing that could be audited"
        if stale:
            return Status("The metrics page has not answered lately", (told,), Tone.UNKNOWN)
        return Status("Known by its metrics page", (told,), Tone.GOOD)
    details = (
        f"{count(health.stored)} events stored",
        f"{count(health.lost)} lost",
        f"{count(health.audits_passed)} audits passed, {count(health.audits_failed)} failed",
    )
    if health.audits_failed:
        return Status("The ledger and the pool's own account differ", details, Tone.BAD)
    if health.last_audit_failure:
        return Status("A law of the ledger did not hold", details, Tone.BAD)
    if stale:
        hint = "is `kvpulse agent` running?"
        return Status("The agent stores nothing new", (hint, *details), Tone.UNKNOWN)
    if engine.state is RunState.DEAD:
        return Status("The engine ended without closing its journal", details, Tone.BAD)
    if not health.stored and not health.lost:
        return Status("No event stored yet", details, Tone.UNKNOWN)
    if health.lost:
        return Status("Some events are lost, and counted", details, Tone.NOTICE)
    if not health.audits_passed:
        return Status("Every event arrived; the pool has not been audited", details, Tone.NOTICE)
    whole = "The whole run arrived" if engine.state is RunState.FINISHED else "Everything arrives"
    return Status(f"{whole}, and ledger and pool agree", details, Tone.GOOD)


def health_tiles(
    engine: EngineRow, health: TelemetryHealth, age_seconds: float | None
) -> list[Tile]:
    """Return the numbers that say how much arrived and how fresh it is."""
    return [
        share_tile(health),
        Tile(
            "Last commit",
            None if age_seconds is None else f"{seconds(age_seconds)} ago",
            "the agent has not committed anything"
            if age_seconds is None
            else date_and_clock(health.last_commit_at_ns),
        ),
        behind_tile(health),
        audits_tile(health),
        Tile("Gaps", count(engine.num_gaps), "stretches known to be missing"),
        Tile(
            "Unknown records", count(health.unknown_records), "of a kind this version cannot read"
        ),
        Tile(
            "Store",
            num_bytes(health.store_bytes),
            f"{num_bytes(health.chunk_bytes)} in {count(health.num_chunks)} chunks of this run",
        ),
        position_tile(health),
    ]


def share_tile(health: TelemetryHealth) -> Tile:
    """Return the share of stated events that is stored."""
    if health.share_ratio is None:
        return Tile("Events stored", None, "nothing stated yet")
    note = f"{count(health.stored)} stored, {count(health.lost)} lost"
    return Tile("Events stored", ratio(health.share_ratio), note)


def behind_tile(health: TelemetryHealth) -> Tile:
    """Return how far the agent is behind the engine."""
    if health.behind_records is None:
        return Tile("Behind", None, "known to the agent only: ask its /readyz")
    return Tile("Behind", f"{count(health.behind_records)} records", "written and not yet stored")


def audits_tile(health: TelemetryHealth) -> Tile:
    """Return how often ledger and pool were held against each other."""
    total = health.audits_passed + health.audits_failed
    if not total:
        return Tile("Audits", None, "the engine has not stated its own account")
    if not health.audits_failed:
        return Tile("Audits", f"{count(total)} passed", "none failed: ledger = pool, each time")
    note = f"of {count(total)}; last: {health.last_audit_failure or 'not told'}"
    return Tile("Audits", f"{count(health.audits_failed)} failed", note)


def position_tile(health: TelemetryHealth) -> Tile:
    """Return where in the journal the agent stands."""
    if health.position is None:
        return Tile("Position", None, "no journal read yet")
    note = f"segment {health.position.segment}, record {count(health.position.record)} in it"
    return Tile("Position", f"#{count(health.position.seq)}", note)


def kinds_table(totals: Mapping[str, KindTotal]) -> dict[str, list[str | int | float | None]]:
    """Return stored and lost events per kind, the most lost first, then the most stored."""
    order = sorted(totals, key=lambda name: (-totals[name].lost, -totals[name].stored, name))
    return {
        "Kind": list(order),
        "Stored": [totals[name].stored for name in order],
        "Lost": [totals[name].lost for name in order],
        "Share stored": [share_of(totals[name]) for name in order],
    }


def share_of(total: KindTotal) -> float | None:
    """Return the stored share of one kind; None if there was none."""
    stated = total.stored + total.lost
    return total.stored / stated if stated else None


def gaps_table(gaps: Sequence[GapRow]) -> dict[str, list[str | int | None]]:
    """Return the gaps, the newest first."""
    newest = sorted(gaps, key=lambda gap: -gap.seq1)
    return {
        "From (UTC)": [date_and_clock(gap.start_ns).removesuffix(" UTC") for gap in newest],
        "Length": [nanoseconds(gap.end_ns - gap.start_ns) for gap in newest],
        "Why": [words(gap.why) for gap in newest],
        "Records": [gap.seq1 - gap.seq0 for gap in newest],
        "Events lost": [sum(gap.lost.values()) for gap in newest],
        "Most of": [most_lost(gap) for gap in newest],
    }


def laws_table(laws: Sequence[BrokenLaw]) -> dict[str, list[str | None]]:
    """Return the laws that did not hold, in the order given; a missing end: they do not now."""
    shown = [broken.closed_at_ns for broken in laws]
    return {
        "Law": [words(broken.law) for broken in laws],
        "From (UTC)": [date_and_clock(b.opened_at_ns).removesuffix(" UTC") for b in laws],
        "Held again": [None if at is None else date_and_clock(at) for at in shown],
        "Found": [broken.found for broken in laws],
        "Expected": [broken.expected or None for broken in laws],
        "Blocks": [few(broken.blocks, broken.num_blocks) for broken in laws],
        "Sequences": [few(map(owner_text, broken.owners), broken.num_owners) for broken in laws],
    }


def owner_text(owner: int) -> str:
    """Name a sequence."""
    return "unknown" if owner == UNKNOWN_OWNER else str(owner)


def few(names: Iterable[object], number: int) -> str | None:
    """List names, and say how many more there are; None for none."""
    listed = list(map(str, names))
    more = f" and {number - len(listed)} more" if number > len(listed) else ""
    return ", ".join(listed) + more if listed else None


def most_lost(gap: GapRow) -> str | None:
    """Name the kind that a gap took most of."""
    return words(max(gap.lost, key=lambda kind: gap.lost[kind])) if gap.lost else None
