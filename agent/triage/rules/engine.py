"""Is there an engine, and does it move?"""

from agent.reads.models import RunState
from agent.triage.causes import NOTHING_LACKING
from agent.triage.evidence import at_end, clock, counted, over, since
from agent.triage.facts import Facts, PoolFacts, QueueFacts
from agent.triage.thresholds import Thresholds
from agent.triage.verdicts import AT_ONCE, SOON, Action, Confidence, Finding, Verdict


def engine_down(facts: Facts, thresholds: Thresholds) -> Finding | None:
    """The writer is gone and did not close its journal."""
    if facts.run.state is not RunState.DEAD:
        return None
    live = facts.queue.live if facts.queue is not None else 0
    last = clock(facts.run.last_event_at_ns or facts.end_ns)
    return Finding(
        verdict=Verdict.ENGINE_DOWN,
        action=Action.RESTART,
        confidence=Confidence.HIGH,
        impact=float(live),
        opens_after_seconds=AT_ONCE,
        summary=f"the engine's process is gone; its last event was at {last}"
        f" with {counted(live, 'sequence')} live",
        advice="start it again; its journal ends without a goodbye, so look for the kernel's OOM"
        " killer, the container's limits and the node",
        evidence=(
            at_end(facts, "last_event_at", last, "UTC", f"the last event is of {last}"),
            at_end(facts, "live_sequences", live, "sequences", f"{live} sequences were live"),
        ),
    )


def stalled(facts: Facts, thresholds: Thresholds) -> Finding | None:
    """Sequences are live, and nothing moves although nothing is lacking."""
    queue, pool, steps = facts.queue, facts.pool, facts.steps
    if queue is None or steps is None or facts.run.state is RunState.DEAD or not queue.live:
        return None
    idle = steps.since_step_seconds
    if idle >= _longest_step_seconds(facts, thresholds) and not _lacks_blocks(queue, pool):
        return _stalled(facts, queue, idle, f"no step for {idle:.0f} s although sequences are live")
    stuck = queue.stuck_seconds
    if stuck >= thresholds.no_admission_seconds and _has_room(queue, pool):
        return _stalled(facts, queue, stuck, f"nobody was admitted for {stuck:.0f} s")
    return None


def silent(facts: Facts, thresholds: Thresholds) -> Finding | None:
    """Sequences are live, the engine's process is there, and it states nothing any more.

    An agent that reads its journal is alive and has found nothing new in it. Where no agent is, or
    the engine is known by a page that did not answer, nobody can tell who is silent.
    """
    queue, telemetry = facts.queue, facts.telemetry
    age, agent_age = telemetry.commit_age_seconds, telemetry.agent_age_seconds
    if age is None or age < thresholds.stale_seconds or telemetry.is_asked:
        return None
    if agent_age is None or agent_age >= thresholds.stale_seconds:
        return None
    if queue is None or not queue.live or age < _longest_step_seconds(facts, thresholds):
        return None
    text = f"no step and no sign of life for {age:.0f} s although sequences are live"
    return _stalled(facts, queue, age, text)


def _longest_step_seconds(facts: Facts, thresholds: Thresholds) -> float:
    """Return how long a step may take; an engine's first one compiles kernels."""
    lasting = facts.lasting
    has_begun = (
        lasting is None or lasting.computed_tokens or lasting.known_seconds >= lasting.seconds
    )
    return thresholds.idle_step_seconds if has_begun else thresholds.first_step_seconds


def _lacks_blocks(queue: QueueFacts, pool: PoolFacts | None) -> bool:
    """Say whether the pool is why nothing runs: nobody holds blocks that would come free."""
    if pool is None or pool.available is None or queue.running:
        return False
    if queue.least_needed is None:
        return not pool.available
    return queue.least_needed > pool.available


def _has_room(queue: QueueFacts, pool: PoolFacts | None) -> bool:
    """Say whether somebody who waits could have been let in."""
    waited = sum(queue.stuck_by_cause.values())
    lacking_nothing = sum(queue.stuck_by_cause.get(cause, 0.0) for cause in NOTHING_LACKING)
    if queue.max_batch is not None and queue.running >= queue.max_batch:
        return False
    if pool is None or pool.available is None or pool.available < (queue.least_needed or 1):
        return False
    return waited > 0 and lacking_nothing >= 0.5 * waited


def _stalled(facts: Facts, queue: QueueFacts, seconds: float, what: str) -> Finding:
    free = facts.pool.available if facts.pool is not None else None
    room = "" if free is None else f"; nothing moves though {counted(free, 'block')} are free"
    evidence = [
        at_end(facts, "waiting", queue.waiting, "sequences", f"{queue.waiting} wait"),
        at_end(facts, "running", queue.running, "sequences", f"{queue.running} run"),
        since(facts, seconds, "still_seconds", round(seconds, 1), "seconds", what),
    ]
    if free is not None:
        evidence.append(
            at_end(
                facts, "available_blocks", free, "blocks", f"{counted(free, 'block')} can be taken"
            )
        )
    return Finding(
        verdict=Verdict.STALLED,
        action=Action.RESTART,
        confidence=Confidence.HIGH,
        impact=float(queue.waiting + queue.running),
        opens_after_seconds=SOON,
        summary=f"{what}, while {counted(queue.waiting, 'sequence')} wait and"
        f" {queue.running} run{room}",
        advice="take the engine out of rotation, take a stack dump of its scheduler, restart it;"
        " more replicas or more blocks change nothing",
        evidence=tuple(evidence),
        explains=frozenset(
            {
                *(Verdict.HEAD_OF_LINE, Verdict.BATCH_SLOTS, Verdict.TOKEN_BUDGET),
                *(Verdict.POOL_EXHAUSTED, Verdict.UNKNOWN, Verdict.TRAFFIC_SHIFT),
            }
        ),
    )


def livelock(facts: Facts, thresholds: Thresholds) -> Finding | None:
    """Steps are made and nothing comes of them: what is computed is thrown away again."""
    steps, queue, traffic = facts.steps, facts.queue, facts.traffic
    if steps is None or queue is None or traffic is None or facts.telemetry.gaps:
        return None
    if steps.recomputed_tokens is None:
        return None
    computed = steps.prefill_tokens + steps.decode_tokens
    wasted = steps.recomputed_tokens >= 0.8 * max(1, computed)
    if not queue.live or traffic.finished or not steps.preempted or not wasted:
        return None
    text = f"{steps.num_steps} steps, {steps.preempted} preemptions, nobody finished"
    return Finding(
        verdict=Verdict.LIVELOCK,
        action=Action.RESTART,
        confidence=Confidence.MEDIUM,
        impact=float(queue.live),
        summary=f"sequences take blocks from each other and start over: {text}",
        advice="stop admitting, let the queue run empty or restart; then bound preemptions or"
        " reserve the blocks a sequence may still need",
        evidence=(
            over(facts, "preempted", steps.preempted, "preemptions", text),
            over(
                facts,
                "recomputed_tokens",
                steps.recomputed_tokens,
                "tokens",
                f"{steps.recomputed_tokens} of {computed} computed tokens were computed before",
            ),
        ),
        explains=frozenset({Verdict.PREEMPTION_THRASH, Verdict.POOL_EXHAUSTED}),
    )
