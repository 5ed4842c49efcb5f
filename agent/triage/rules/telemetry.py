"""Can what is known be believed, and does it explain what users feel?"""

from agent.triage.evidence import at_end, clock, counted, over
from agent.triage.facts import Facts
from agent.triage.thresholds import Thresholds
from agent.triage.verdicts import (
    AFTER_A_BURST,
    SOON,
    Action,
    Confidence,
    Evidence,
    Finding,
    Verdict,
)


def stale(facts: Facts, thresholds: Thresholds) -> Finding | None:
    """Nothing has been stored of a live engine for long: whatever is known is the past."""
    age = facts.telemetry.commit_age_seconds
    if age is None or age < thresholds.stale_seconds:
        return None
    text = f"nothing has been stored for {age:.0f} s"
    return Finding(
        verdict=Verdict.TELEMETRY_INCOMPLETE,
        action=Action.RESTART,
        confidence=Confidence.HIGH,
        impact=0.0,
        opens_after_seconds=SOON,
        summary=f"{text}; what is known ends at {clock(facts.end_ns)} and says nothing of now",
        advice="see whether the agent runs and can read the journal (`/readyz` says), then whether"
        " the engine still writes",
        evidence=(at_end(facts, "commit_age_seconds", round(age, 1), "seconds", text),),
    )


def incomplete(facts: Facts, thresholds: Thresholds) -> Finding | None:
    """Events of the window are lost."""
    telemetry = facts.telemetry
    if not telemetry.lost_events:
        return None
    known = telemetry.stored_events + telemetry.lost_events
    share = telemetry.stored_events / known
    why = ", ".join(sorted({gap.why for gap in telemetry.gaps}))
    text = f"{counted(telemetry.lost_events, 'event')} lost in {len(telemetry.gaps)} gaps ({why})"
    return Finding(
        verdict=Verdict.TELEMETRY_INCOMPLETE,
        action=Action.CHECK_HARDWARE,
        confidence=Confidence.HIGH,
        impact=0.0,
        opens_after_seconds=SOON,
        summary=f"{text}; {share:.1%} of the window's events are known",
        advice="see whether the disk that holds the journal is full or slow, and whether the agent"
        " keeps up; what is drawn of this time is a part",
        evidence=(
            over(facts, "lost_events", telemetry.lost_events, "events", text),
            over(facts, "known_ratio", round(share, 4), "ratio", f"{share:.1%} known"),
        ),
        casts_doubt=share < thresholds.least_known_ratio,
        explains=frozenset({Verdict.UNKNOWN}),
    )


def unexplained(facts: Facts, thresholds: Thresholds) -> Finding | None:
    """Nothing is known at all, or users wait longer than they are to and no rule says why."""
    if facts.pool is None or facts.steps is None:
        text = facts.missing.get("rollups", "the engine has stated no block counts yet")
        return _unknown(facts, text, ())
    targets = thresholds.targets
    told = []
    for name, most in (
        ("ttft", targets.ttft_seconds),
        ("inter_token", targets.inter_token_seconds),
    ):
        found = facts.latencies.get(name)
        if found is not None and found.p95 > most:
            text = f"{name} is {found.p95:.2f} s at the 95th percentile, {most:g} s is the target"
            told.append(over(facts, f"{name}_p95_seconds", round(found.p95, 3), "seconds", text))
    if not told:
        return None
    return _unknown(facts, "; ".join(each.text for each in told), tuple(told))


def _unknown(facts: Facts, text: str, evidence: tuple[Evidence, ...]) -> Finding:
    return Finding(
        verdict=Verdict.UNKNOWN,
        action=Action.NONE,
        confidence=Confidence.LOW,
        impact=0.0,
        opens_after_seconds=AFTER_A_BURST,
        summary=text,
        advice="look at the Overview for the time before; what is missing is listed",
        evidence=evidence,
    )


def healthy(facts: Facts) -> Finding:
    """Return what is said where no rule holds."""
    queue, pool = facts.queue, facts.pool
    live = queue.live if queue is not None else 0
    waiting = queue.waiting if queue is not None else 0
    evidence = [at_end(facts, "live_sequences", live, "sequences", f"{live} live, {waiting} wait")]
    if pool is not None:
        text = f"{pool.active} of {pool.total} blocks active"
        evidence.append(at_end(facts, "active_blocks", pool.active, "blocks", text))
    return Finding(
        verdict=Verdict.HEALTHY,
        action=Action.NONE,
        confidence=Confidence.HIGH,
        impact=0.0,
        summary="nothing is wrong: " + ", ".join(each.text for each in evidence)
        if live
        else "nothing is wrong: the engine is idle",
        advice="nothing to do",
        evidence=tuple(evidence),
    )
