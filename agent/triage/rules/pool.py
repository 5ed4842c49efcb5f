"""Is it the pool: too few blocks, a request that never fits, one at the head of the line?"""

from typing import Final

from agent.triage.causes import POOL
from agent.triage.congestion import are_refused, is_congested, num_refused, opens_after_seconds
from agent.triage.evidence import at_end, clock, counted, over, since
from agent.triage.facts import Facts, PoolFacts
from agent.triage.thresholds import Thresholds
from agent.triage.verdicts import SOON, Action, Confidence, Evidence, Finding, Verdict

NEVER: Final = ("exceeds_pool", "exceeds_quota")


def pool_exhausted(facts: Facts, thresholds: Thresholds) -> Finding | None:
    """Sequences wait for blocks and there are none; or the pool has lost a part of its blocks."""
    pool = facts.pool
    if pool is None:
        return None
    held_up = facts.held_up(*POOL)
    waits = facts.wait_per_arrival(*POOL)
    is_scarce = pool.available_ratio <= thresholds.scarce_ratio
    is_short = is_scarce and is_congested(facts, thresholds, POOL)
    has_shrunk = (
        pool.total is not None
        and pool.first_total is not None
        and pool.total <= (1 - thresholds.shrunk_ratio) * pool.first_total
    )
    if not is_short and not has_shrunk:
        return None
    evidence = [
        over(
            facts,
            "available_ratio",
            round(pool.available_ratio, 4),
            "ratio",
            f"{pool.available_ratio:.1%} of {_size(pool)} free or cached",
        ),
        over(
            facts,
            "waiting_for_blocks",
            round(held_up, 2),
            "sequences",
            f"{held_up:.1f} sequences waited for blocks on average",
        ),
        over(
            facts,
            "pool_wait_seconds",
            round(waits, 2),
            "seconds",
            f"{waits:.1f} s of waiting for blocks per arrival",
        ),
        *_preempted(facts),
    ]
    if has_shrunk:
        return _shrunk(facts, pool, held_up, evidence, hurts=is_short)
    return Finding(
        verdict=Verdict.POOL_EXHAUSTED,
        action=Action.SCALE,
        confidence=Confidence.MEDIUM if facts.waits_are_inferred else Confidence.HIGH,
        impact=held_up,
        opens_after_seconds=opens_after_seconds(facts),
        summary=f"the pool is full: {evidence[1].text}, {evidence[0].text}",
        advice="give the pool more blocks, add a replica, or shorten what is asked for; until then"
        " throttle the longest requests",
        evidence=tuple(evidence),
        explains=frozenset({Verdict.PREEMPTION_THRASH, Verdict.UNKNOWN}),
    )


def _size(pool: PoolFacts) -> str:
    return "the pool" if pool.total is None else counted(pool.total, "block")


def _preempted(facts: Facts) -> list[Evidence]:
    """Return what says that blocks were short, where the engine does not state it by cause."""
    if not facts.waits_are_inferred or facts.steps is None or not facts.steps.preempted:
        return []
    a_second = facts.steps.preempted / facts.seconds
    text = f"{a_second:.2f} preemptions a second"
    return [over(facts, "preempted", facts.steps.preempted, "preemptions", text)]


def _shrunk(
    facts: Facts, pool: PoolFacts, held_up: float, evidence: list[Evidence], *, hurts: bool
) -> Finding:
    first = pool.resizes[0] if pool.resizes else None
    when = f" at {clock(first.at_ns)}" if first is not None else ""
    text = f"pool went from {pool.first_total} to {pool.total} blocks{when}"
    shrunk = at_end(facts, "pool_blocks", [pool.first_total, pool.total], "blocks", text)
    so = f"; {evidence[1].text}" if hurts else "; nobody has to wait for blocks yet"
    return Finding(
        verdict=Verdict.POOL_EXHAUSTED,
        action=Action.CHECK_HARDWARE,
        confidence=Confidence.HIGH if hurts else Confidence.MEDIUM,
        impact=held_up,
        opens_after_seconds=SOON,
        summary=text + so,
        advice="find who took memory of the card (another process, another engine, a profiler) and"
        " give it back to the pool; route less traffic here until then",
        evidence=(shrunk, *evidence),
        explains=frozenset(
            {
                *(Verdict.PREEMPTION_THRASH, Verdict.NEVER_FITS, Verdict.HEAD_OF_LINE),
                *(Verdict.LIVELOCK, Verdict.UNKNOWN),
            }
        ),
    )


def never_fits(facts: Facts, thresholds: Thresholds) -> Finding | None:
    """A request waits that the whole pool could not hold, or many are refused as such."""
    pool, queue, traffic = facts.pool, facts.queue, facts.traffic
    total = None if pool is None else pool.total
    waits = total is not None and queue is not None and (queue.most_needed or 0) > total
    refused = num_refused(facts, NEVER)
    arrived = traffic.came if traffic else 0
    many = are_refused(facts, thresholds, NEVER)
    if not waits and not many:
        return None
    told = []
    if waits and queue is not None:
        text = (
            f"sequence {queue.most_needed_by} needs {queue.most_needed} blocks,"
            f" the whole pool has {total}"
        )
        told.append(at_end(facts, "needed_blocks", queue.most_needed, "blocks", text))
    if many:
        text = f"{refused} of {counted(arrived, 'request')} refused: larger than the pool or quota"
        told.append(over(facts, "refused_never_fits", refused, "requests", text))
    return Finding(
        verdict=Verdict.NEVER_FITS,
        action=Action.CHANGE_BLOCK_POLICY,
        confidence=Confidence.HIGH,
        impact=facts.held_up(*POOL) if waits else float(refused) / facts.seconds,
        opens_after_seconds=SOON,
        summary=" ; ".join(each.text for each in told),
        advice="cap prompt plus output at what the pool holds, at the gateway or with the context"
        " limit; replicas of the same size refuse it too",
        evidence=tuple(told),
        explains=frozenset({Verdict.HEAD_OF_LINE, Verdict.UNKNOWN})
        | ({Verdict.POOL_EXHAUSTED, Verdict.STALLED} if waits else set()),
    )


def head_of_line(facts: Facts, thresholds: Thresholds) -> Finding | None:
    """One sequence has waited long for blocks, and others behind it would fit."""
    queue = facts.queue
    head = queue.head if queue is not None else None
    if queue is None or head is None or not head.num_runnable:
        return None
    waited = min(head.waited_ns / 1e9, queue.stuck_seconds)
    if waited < thresholds.head_wait_seconds:
        return None
    return Finding(
        verdict=Verdict.HEAD_OF_LINE,
        action=Action.CHANGE_BLOCK_POLICY,
        confidence=Confidence.HIGH,
        impact=facts.held_up("pool_behind"),
        opens_after_seconds=SOON,
        summary=head.sentence,
        advice="let small requests pass a large one for a bounded time, give large ones a queue of"
        " their own, or cap what one request may need",
        evidence=(
            at_end(
                facts,
                "head_of_line",
                head.owner,
                "sequence number",
                f"sequence {head.owner} is at the head of the line",
            ),
            at_end(
                facts,
                "runnable_blocks",
                head.runnable_blocks,
                "blocks",
                f"{head.runnable_blocks} blocks of runnable work stand behind it",
            ),
            since(
                facts,
                head.waited_ns / 1e9,
                "booked_seconds",
                round(head.booked_ns / 1e9, 1),
                "seconds",
                f"{head.booked_ns / 1e9:.1f} s of others' waiting are booked to it",
            ),
        ),
        explains=frozenset({Verdict.POOL_EXHAUSTED, Verdict.UNKNOWN}),
    )


def preemption_thrash(facts: Facts, thresholds: Thresholds) -> Finding | None:
    """Much of the work is done a second time, for sequences that had to give their blocks back."""
    steps = facts.steps
    if steps is None or not steps.preempted or steps.recomputed_tokens is None:
        return None
    computed = steps.prefill_tokens + steps.decode_tokens
    ratio = steps.recomputed_tokens / max(1, computed)
    lasting = facts.lasting
    over_minutes = (
        ratio if lasting is None else lasting.recomputed_tokens / max(1, lasting.computed_tokens)
    )
    if min(ratio, over_minutes) < thresholds.thrash_ratio:
        return None
    live = facts.queue.live if facts.queue is not None else 0
    text = f"{ratio:.0%} of all computed tokens had been computed before"
    return Finding(
        verdict=Verdict.PREEMPTION_THRASH,
        action=Action.THROTTLE,
        confidence=Confidence.HIGH,
        impact=facts.held_up(*POOL) + ratio * live,
        opens_after_seconds=opens_after_seconds(facts),
        summary=f"sequences keep giving way to each other: {steps.preempted} preemptions, {text}",
        advice="admit fewer at once (a watermark, a smaller batch), or swap instead of recompute",
        evidence=(
            over(facts, "recomputed_ratio", round(ratio, 4), "ratio", text),
            over(
                facts,
                "preempted",
                steps.preempted,
                "preemptions",
                f"{steps.preempted / facts.seconds:.2f} preemptions a second",
            ),
        ),
        explains=frozenset({Verdict.POOL_EXHAUSTED, Verdict.UNKNOWN}),
    )
