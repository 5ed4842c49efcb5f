"""Is it a limit of the scheduler's: places of the batch, tokens of a step, a tenant's quota?"""

from agent.triage.causes import BATCH_SLOTS, POOL, TENANT_QUOTA, TOKEN_BUDGET
from agent.triage.congestion import is_congested, opens_after_seconds
from agent.triage.evidence import at_end, counted, over
from agent.triage.facts import Facts
from agent.triage.thresholds import Thresholds
from agent.triage.verdicts import Action, Confidence, Evidence, Finding, Verdict


def batch_slots(facts: Facts, thresholds: Thresholds) -> Finding | None:
    """Sequences wait for a place in the batch."""
    told = _waiting(facts, thresholds, "batch_slots", BATCH_SLOTS, "a place in the batch")
    if told is None:
        return None
    queue, pool = facts.queue, facts.pool
    limit = "" if queue is None else f"{queue.running} run"
    if queue is not None and queue.max_batch is not None:
        limit = f"{queue.running} run, at most {queue.max_batch} may"
        if queue.max_batch_is_guess:
            limit = f"{queue.running} run, unchanging: a cap near {queue.max_batch}"
        told += (at_end(facts, "max_batch", queue.max_batch, "sequences", limit),)
    if pool is not None:
        text = f"the pool is not the cause: {pool.available_ratio:.0%} of it can be taken"
        told += (over(facts, "available_ratio", round(pool.available_ratio, 4), "ratio", text),)
    return Finding(
        verdict=Verdict.BATCH_SLOTS,
        action=Action.SCALE,
        confidence=Confidence.MEDIUM
        if queue is not None and queue.max_batch_is_guess
        else Confidence.HIGH,
        impact=facts.held_up(*BATCH_SLOTS),
        opens_after_seconds=opens_after_seconds(facts),
        summary=f"{told[0].text}: {limit}",
        advice="raise the limit of sequences per step (max_num_seqs) while the step time allows it,"
        " or add a replica; more blocks change nothing",
        evidence=told,
        explains=frozenset({Verdict.UNKNOWN}),
    )


def token_budget(facts: Facts, thresholds: Thresholds) -> Finding | None:
    """Sequences wait for tokens of a step: prompts come faster than steps can take them."""
    told = _waiting(facts, thresholds, "token_budget", TOKEN_BUDGET, "the step's token budget")
    if told is None:
        return None
    return Finding(
        verdict=Verdict.TOKEN_BUDGET,
        action=Action.SCALE,
        confidence=Confidence.HIGH,
        impact=facts.held_up(*TOKEN_BUDGET),
        opens_after_seconds=opens_after_seconds(facts),
        summary=told[0].text,
        advice="raise the token budget of a step if inter-token latency has room, or add a replica"
        " for prefill",
        evidence=told,
        explains=frozenset({Verdict.UNKNOWN}),
    )


def tenant_quota(facts: Facts, thresholds: Thresholds) -> Finding | None:
    """Sequences wait because their own tenant has all it may have."""
    told = _waiting(facts, thresholds, "tenant_quota", TENANT_QUOTA, "their tenant's quota")
    if told is None:
        return None
    return Finding(
        verdict=Verdict.TENANT_QUOTA,
        action=Action.THROTTLE,
        confidence=Confidence.HIGH,
        impact=facts.held_up(*TENANT_QUOTA),
        opens_after_seconds=opens_after_seconds(facts),
        summary=told[0].text,
        advice="the quota works as set: ask the tenant to send less, or raise its ceiling where the"
        " pool has room",
        evidence=told,
        explains=frozenset({Verdict.UNKNOWN}),
    )


def _waiting(
    facts: Facts, thresholds: Thresholds, name: str, causes: tuple[str, ...], what: str
) -> tuple[Evidence, ...] | None:
    """Return the evidence that one cause keeps sequences waiting, None where it does not hurt."""
    if not is_congested(facts, thresholds, causes):
        return None
    held_up = facts.held_up(*causes)
    waits = facts.wait_per_arrival(*causes)
    for_blocks = facts.held_up(*POOL)
    arrivals = counted(facts.traffic.came, "arrival") if facts.traffic else "arrivals"
    return (
        over(
            facts,
            f"waiting_for_{name}",
            round(held_up, 2),
            "sequences",
            f"{held_up:.1f} sequences waited for {what} on average ({for_blocks:.1f} for blocks)",
        ),
        over(
            facts,
            f"{name}_wait_seconds",
            round(waits, 2),
            "seconds",
            f"{waits:.1f} s of that waiting for each of {arrivals}",
        ),
    )
