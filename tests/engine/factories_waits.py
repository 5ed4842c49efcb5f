"""Hold the cause of a wait against a replay of the pass without everybody else who waits."""

import copy

from engine.runner import StepPlan


def one_step(engine, cancels):
    for seq_id in cancels:
        engine.cancel(seq_id)
    before = copied(engine._scheduler)
    run_pass = engine._scheduler.run_pass
    seen = []

    def watched(step):
        plan = run_pass(step)
        seen.append([copy.copy(seq) for seq in engine._scheduler.waiting])
        return plan

    engine._scheduler.run_pass = watched
    engine.step()
    del engine._scheduler.run_pass
    engine.check()
    before.verdicts = seen[0]
    yield before


def admitted_alone(before, seq_id, still_waiting):
    """Replay the pass without the other sequences that wait at its end."""
    replay = copied(before)
    others = still_waiting - {seq_id}
    keep_only(replay, others)
    plan = StepPlan(0)
    replay._plan_running(plan)
    keep_only(replay, others)  # those preempted in this very pass wait at its end too
    replay._admit_waiting(plan)
    return any(seq.seq_id == seq_id for seq in replay.running)


def admitted_at_the_end(before, seq_id):
    """Replay the whole pass, then ask for this sequence alone whether it would be admitted too."""
    replay = copied(before)
    plan = StepPlan(0)
    replay._plan_running(plan)
    replay._admit_waiting(plan)
    keep_only(replay, {seq.seq_id for seq in replay.waiting} - {seq_id})
    replay._admit_waiting(plan)
    return any(seq.seq_id == seq_id for seq in replay.running)


def copied(scheduler):
    """Copy a scheduler and its pool; the hasher has no state and cannot be copied."""
    hasher = getattr(scheduler.judge._state.index, "_hasher", None)
    return copy.deepcopy(scheduler, {id(hasher): hasher})


def keep_only(scheduler, others):
    for seq in [seq for seq in scheduler.waiting if seq.seq_id in others]:
        scheduler.waiting.remove(seq)
        scheduler.judge.leave(seq)
