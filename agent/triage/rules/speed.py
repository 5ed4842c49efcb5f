"""Is it slow: the step on the device, or the server in front of the engine?"""

from agent.triage.evidence import over
from agent.triage.facts import Facts
from agent.triage.thresholds import Thresholds
from agent.triage.verdicts import Action, Confidence, Evidence, Finding, Verdict


def compute_slow(facts: Facts, thresholds: Thresholds) -> Finding | None:
    """Steps take longer than this engine took for the same prefill, batch and context."""
    steps, queue = facts.steps, facts.queue
    if steps is None or queue is None or steps.slow_ratio is None:
        return None
    if steps.expected_seconds is None or steps.compute_seconds is None:
        return None
    if steps.slow_ratio < thresholds.slow_step_ratio:
        return None
    ratio = steps.slow_ratio
    # Of the sequence-seconds spent running, the part that the past would not have taken.
    running = steps.decode_tokens / max(1, steps.num_steps)
    busy = min(1.0, steps.compute_seconds / facts.seconds)
    evidence = [
        over(
            facts,
            "slow_ratio",
            round(ratio, 2),
            "ratio",
            f"steps take {ratio:.1f} times as long as before for the same work",
        ),
        over(
            facts,
            "compute_seconds",
            round(steps.compute_seconds, 2),
            "seconds",
            f"{steps.compute_seconds:.1f} s computed, {steps.expected_seconds:.1f} s expected",
        ),
        *_inter_token(facts),
    ]
    return Finding(
        verdict=Verdict.COMPUTE_SLOW,
        action=Action.CHECK_HARDWARE,
        confidence=Confidence.HIGH
        if ratio >= 2 * thresholds.slow_step_ratio
        else Confidence.MEDIUM,
        impact=(1 - 1 / ratio) * running * busy + sum(facts.waits.values()) / facts.seconds,
        summary=f"{evidence[0].text} ({evidence[1].text})",
        advice="look at the device: clocks and throttling, another process on it, a changed kernel"
        " or driver; blocks and scheduler are not the cause",
        evidence=tuple(evidence),
        explains=frozenset(
            {
                *(Verdict.POOL_EXHAUSTED, Verdict.BATCH_SLOTS, Verdict.TOKEN_BUDGET),
                *(Verdict.PREEMPTION_THRASH, Verdict.HEAD_OF_LINE, Verdict.UNKNOWN),
            }
        ),
    )


def _inter_token(facts: Facts) -> list[Evidence]:
    found = facts.latencies.get("inter_token")
    if found is None:
        return []
    text = f"{found.p95 * 1e3:.0f} ms between two tokens at the 95th percentile"
    return [over(facts, "inter_token_p95_seconds", round(found.p95, 4), "seconds", text)]


def frontend_slow(facts: Facts, thresholds: Thresholds) -> Finding | None:
    """Requests spend long in the server before the engine has them."""
    frontend, ttft = facts.latencies.get("frontend"), facts.latencies.get("ttft")
    if frontend is None or frontend.p50 < thresholds.slow_frontend_seconds:
        return None
    mean = frontend.sum / frontend.count
    engine = ttft.sum / ttft.count if ttft is not None else 0.0
    part = mean / (mean + engine)
    if part < thresholds.slow_frontend_ratio:
        return None
    evidence = (
        over(
            facts,
            "frontend_p50_seconds",
            round(frontend.p50, 3),
            "seconds",
            f"a request spends {frontend.p50:.2f} s in the server before the engine has it"
            " (median)",
        ),
        over(
            facts,
            "frontend_ratio",
            round(part, 3),
            "ratio",
            f"{part:.0%} of the users' wait for a first token",
        ),
    )
    return Finding(
        verdict=Verdict.FRONTEND_SLOW,
        action=Action.FIX_CODE,
        confidence=Confidence.HIGH,
        impact=frontend.sum / facts.seconds,
        summary=f"{evidence[0].text}: {evidence[1].text}",
        advice="look at the server's event loop, the tokenizer and whatever proxies in front: give"
        " it cores or processes; the engine itself is well",
        evidence=evidence,
        explains=frozenset({Verdict.UNKNOWN}),
    )
