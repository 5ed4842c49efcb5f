"""Is it what is asked for: one tenant, or all of them?"""

from agent.triage.causes import BATCH_SLOTS, POOL, TOKEN_BUDGET
from agent.triage.congestion import is_congested, opens_after_seconds
from agent.triage.evidence import over
from agent.triage.facts import Facts, Past, TenantShare, TrafficFacts
from agent.triage.thresholds import Thresholds
from agent.triage.verdicts import Action, Confidence, Evidence, Finding, Verdict

OF_DEMAND = frozenset(
    {
        *(Verdict.POOL_EXHAUSTED, Verdict.BATCH_SLOTS, Verdict.TOKEN_BUDGET),
        *(Verdict.PREEMPTION_THRASH, Verdict.HEAD_OF_LINE, Verdict.UNKNOWN),
    }
)


def tenant_hog(facts: Facts, thresholds: Thresholds) -> Finding | None:
    """One tenant holds most of what is in use: far more than before, or while others wait."""
    if facts.pool is None or facts.pool.total is None or len(facts.tenants) < 2:
        return None
    first = facts.tenants[0]
    of_pool = first.active_blocks / max(1, facts.pool.total)
    if first.share < thresholds.hog_share or of_pool < thresholds.hog_pool_ratio:
        return None
    grew = first.past_share is not None and (
        first.share - first.past_share >= thresholds.hog_growth
    )
    # What nobody else would use is nobody's loss.
    minds = of_pool >= thresholds.hog_crowds_ratio or (
        facts.held_up(*POOL, *BATCH_SLOTS, *TOKEN_BUDGET) >= thresholds.least_waiting
    )
    hurts = is_congested(facts, thresholds, (*POOL, *BATCH_SLOTS))
    if not (grew and minds) and not (hurts and first.past_share is None):
        return None
    evidence = _shares(facts, first, of_pool)
    return Finding(
        verdict=Verdict.TENANT_HOG,
        action=Action.THROTTLE,
        confidence=Confidence.HIGH if grew else Confidence.MEDIUM,
        impact=facts.held_up(*POOL, *BATCH_SLOTS, *TOKEN_BUDGET),
        summary=f"tenant {first.tenant or '(none)'}: {'; '.join(x.text for x in evidence[1:])}",
        advice="limit this tenant (a ceiling of blocks, a rate at the gateway) and ask what it"
        " runs; the others need no more capacity",
        evidence=evidence,
        explains=OF_DEMAND | {Verdict.TRAFFIC_SHIFT, Verdict.TENANT_QUOTA},
    )


def _shares(facts: Facts, first: TenantShare, of_pool: float) -> tuple[Evidence, ...]:
    told = [
        over(facts, "tenant", first.tenant, "tenant", f"tenant {first.tenant or '(none)'}"),
        over(
            facts,
            "tenant_share",
            round(first.share, 4),
            "ratio",
            f"{first.share:.0%} of all block-seconds in use",
        ),
        over(
            facts,
            "tenant_pool_ratio",
            round(of_pool, 4),
            "ratio",
            f"{of_pool:.0%} of the pool",
        ),
    ]
    if first.past_share is not None and facts.past is not None:
        told.append(
            Evidence(
                "tenant_past_share",
                round(first.past_share, 4),
                "ratio",
                f"{first.past_share:.0%} of them before",
                facts.past.start_ns,
                facts.past.end_ns,
            )
        )
    return tuple(told)


def traffic_shift(facts: Facts, thresholds: Thresholds) -> Finding | None:
    """More is asked for than before, in requests or in their length, and it hurts."""
    past, traffic = facts.past, facts.traffic
    if past is None or traffic is None or not traffic.came:
        return None
    causes = (*POOL, *BATCH_SLOTS, *TOKEN_BUDGET)
    rate, length = _growth(facts, past, traffic)
    if not is_congested(facts, thresholds, causes) or rate * length < thresholds.shift_ratio:
        return None
    evidence = (
        over(
            facts,
            "arrival_growth",
            round(rate, 2),
            "ratio",
            f"{traffic.came / facts.seconds:.2f} requests a second, {rate:.1f} times as before",
        ),
        over(
            facts,
            "prompt_growth",
            round(length, 2),
            "ratio",
            f"prompts of {traffic.mean_prompt_tokens or 0:.0f} tokens, {length:.1f} times as long",
        ),
    )
    return Finding(
        verdict=Verdict.TRAFFIC_SHIFT,
        action=Action.CHECK_TRAFFIC,
        confidence=Confidence.MEDIUM,
        impact=facts.held_up(*causes),
        opens_after_seconds=opens_after_seconds(facts),
        summary=f"the traffic is another one than before: {evidence[0].text}, {evidence[1].text}",
        advice="ask who sends it and whether it stays: shed or route it if not, plan capacity for"
        " it if so",
        evidence=evidence,
        explains=OF_DEMAND,
    )


def _growth(facts: Facts, past: Past, traffic: TrafficFacts) -> tuple[float, float]:
    """Return how much the rate of requests and their prompts have grown, 1 being not at all."""
    now = traffic.came / facts.seconds
    rate = now / past.arrived_per_second if past.arrived_per_second > 0 else 1.0
    before, length = past.mean_prompt_tokens, traffic.mean_prompt_tokens
    return rate, length / before if before and length else 1.0
