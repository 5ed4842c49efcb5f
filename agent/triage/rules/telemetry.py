"""Can what is known be believed, and does it explain what users feel?"""

from typing import Final

from agent.triage.causes import BATCH_SLOTS, CAPACITY, POOL, TOKEN_BUDGET
from agent.triage.congestion import hurts_now
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

MISSED_LOOKS: Final = 3
OTHER_CLOCKS: Final = "durations are unaffected; other machines date the same moment differently"
WAITS: Final = ("pool_wait", "scheduler_wait")  # of those admitted, as ttft is of those


def stale(facts: Facts, thresholds: Thresholds) -> Finding | None:
    """Nothing has been stored of a live engine for long: whatever is known is the past."""
    age = facts.telemetry.commit_age_seconds
    # An engine that is asked each 15 s is not silent after 15 s.
    most = max(thresholds.stale_seconds, MISSED_LOOKS * facts.telemetry.interval_seconds)
    if age is None or age < most:
        return None
    telemetry, agent_age = facts.telemetry, facts.telemetry.agent_age_seconds
    if telemetry.is_asked:
        what = "no look at the metrics page has given anything"
    elif agent_age is not None and agent_age < most:
        what = "an idle engine has stated nothing, not even that it is there,"
    else:
        what = "nothing has been stored"
    text = f"{what} for {age:.0f} s"
    return Finding(
        verdict=Verdict.TELEMETRY_INCOMPLETE,
        action=Action.RESTART,
        confidence=Confidence.HIGH,
        impact=0.0,
        opens_after_seconds=SOON,
        summary=f"{text}; what is known ends at {clock(facts.end_ns)} and says nothing of now",
        advice="see whether the agent runs and can read the engine's journal or metrics page"
        " (`/readyz` says), then whether the engine still writes",
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
        why = facts.missing.get("rollups") or facts.missing.get("pool")
        text = why or "the engine has stated no block counts yet"
        return _unknown(facts, text, ())
    targets = thresholds.targets
    told = []
    for name, most in (
        ("ttft", targets.ttft_seconds),
        ("inter_token", targets.inter_token_seconds),
    ):
        found = facts.latencies.get(name)
        if found is not None and found.p95 > most and not (name == "ttft" and _is_waited(facts)):
            text = f"{name} is {found.p95:.2f} s at the 95th percentile, {most:g} s is the target"
            told.append(over(facts, f"{name}_p95_seconds", round(found.p95, 3), "seconds", text))
    told += _unlike_since_start(facts, thresholds)
    told += _of_capacity(facts, thresholds)
    if not told:
        return None
    return _unknown(facts, "; ".join(each.text for each in told), tuple(told))


def unproved_leak(facts: Facts, thresholds: Thresholds) -> Finding | None:
    """More blocks are held than those who run can own, and it may yet be as it should."""
    bound = facts.books.beyond_bound
    if bound is None or not bound.no_proof:
        return None
    text = (
        f"{bound.held} blocks are held, {counted(bound.running, 'request')} that run can own"
        f" {bound.most} at most; no proof of a leak: {bound.no_proof}"
    )
    return _unknown(facts, text, (at_end(facts, "held_blocks", bound.held, "blocks", text),))


def _unlike_since_start(facts: Facts, thresholds: Thresholds) -> list[Evidence]:
    """Return what is unlike the engine's mean since its start, where there is no other past.

    Nobody knows of then what the batch, the context and the load were: so it names no cause.
    """
    if facts.past is not None:
        return []
    told = []
    tokens, mean = facts.latencies.get("inter_token"), facts.since_start.get("inter_token_seconds")
    if tokens is not None and mean:
        ratio = tokens.sum / tokens.count / mean
        if ratio >= thresholds.slow_step_ratio:
            text = f"tokens come {ratio:.1f} times as slowly as on average since the start"
            told.append(over(facts, "inter_token_growth", round(ratio, 2), "ratio", text))
    return told


def _of_capacity(facts: Facts, thresholds: Thresholds) -> list[Evidence]:
    """Return who waits for what the engine calls capacity, where nothing tells what that is."""
    if not hurts_now(facts, thresholds, CAPACITY):
        return []
    held_up = facts.held_up(*CAPACITY)
    text = (
        f"{held_up:.1f} sequences wait for capacity on average, and nothing tells whether for"
        " blocks, for a place in the batch or for tokens of a step"
    )
    return [over(facts, "waiting_for_capacity", round(held_up, 2), "sequences", text)]


def _is_waited(facts: Facts) -> bool:
    """Say whether most of the time to first tokens is known to have gone by in the queue."""
    told = [facts.latencies[name].sum for name in WAITS if name in facts.latencies]
    ttft = facts.latencies.get("ttft")
    return ttft is not None and sum(told) >= 0.5 * ttft.sum


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


def healthy(facts: Facts, thresholds: Thresholds) -> Finding:
    """Return what is said where no rule holds."""
    queue, pool = facts.queue, facts.pool
    live = queue.live if queue is not None else 0
    waiting = queue.waiting if queue is not None else 0
    evidence = [at_end(facts, "live_sequences", live, "sequences", f"{live} live, {waiting} wait")]
    if pool is not None and pool.total is not None:
        text = f"{pool.active} of {pool.total} blocks active"
        evidence.append(at_end(facts, "active_blocks", pool.active, "blocks", text))
    burst = _burst(facts, thresholds)
    clocks = _clock_steps(facts)
    told = ", ".join(each.text for each in [*burst, *evidence])
    said = told if burst else f"nothing is wrong: {told if live else 'the engine is idle'}"
    advice = "wait: should it last for minutes, it is named" if burst else "nothing to do"
    return Finding(
        verdict=Verdict.HEALTHY,
        action=Action.NONE,
        confidence=Confidence.MEDIUM if burst else Confidence.HIGH,
        impact=0.0,
        summary="; ".join([said, *(each.text for each in clocks)]),
        advice="; ".join([advice, *(OTHER_CLOCKS for _ in clocks)]),
        evidence=(*evidence, *burst, *clocks),
    )


def _burst(facts: Facts, thresholds: Thresholds) -> list[Evidence]:
    """Return the evidence of a queue that is long, and has not been so for long."""
    causes = (*POOL, *BATCH_SLOTS, *TOKEN_BUDGET)
    if facts.lasting is None or not hurts_now(facts, thresholds, causes):
        return []
    now, lasting = facts.wait_per_arrival(*causes), facts.lasting_wait_per_arrival(*causes)
    text = (
        f"a burst so far: {now:.1f} s of waiting for each arrival of this window,"
        f" {lasting:.1f} s over {facts.lasting.seconds / 60:.0f} minutes"
    )
    return [over(facts, "burst_wait_seconds", round(now, 2), "seconds", text)]


def _clock_steps(facts: Facts) -> list[Evidence]:
    """Return the evidence of a wall clock that was set: a note, for no duration depends on it."""
    steps = facts.telemetry.clock_steps
    if not steps:
        return []
    text = f"{steps[-1].sentence} at {clock(steps[-1].t_ns)}"
    if len(steps) > 1:
        text += f", the last of {len(steps)} steps"
    seconds = [step.step_ns / 1e9 for step in steps]
    return [over(facts, "clock_steps_seconds", seconds, "seconds", text)]
