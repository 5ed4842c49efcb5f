"""Hold what triage said against what was put in. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from agent.drill.follow import Look
from agent.drill.scenario import Scenario
from agent.triage.verdicts import Evidence, Finding, Verdict

# 2 steps, a second and an audit, without anything lost meanwhile: a keyframe gives a new grace.
LEAK_GRACE_SECONDS: Final = 5.0
CLOCK_STEP: Final = "clock_step"
LEAKS: Final = frozenset({"leak_on_cancel", "leak_slow"})


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one run of a drill went.

    Attributes:
        verdict: What was said at the end of the watched time.
        seconds_to_verdict: From the fault's beginning to the first right verdict; None: never.
        missed: Why it is a miss; None: it is none.
        forbidden: Forbidden verdicts and actions that were said at the end.
        false_alarms: Verdicts of incidents that were opened while nothing was wrong.
    """

    scenario: str
    faults: tuple[str, ...]
    load: float
    verdict: Verdict
    seconds_to_verdict: float | None = None
    missed: str | None = None
    forbidden: tuple[str, ...] = ()
    false_alarms: tuple[str, ...] = ()
    engine_seconds: float = 0.0


def assess(
    scenario: Scenario,
    looks: Sequence[Look],
    truth: Sequence[Mapping[str, object]],
    alarms: Sequence[str],
) -> Outcome:
    """Return how a run went, from its verdicts in order of time."""
    last = looks[-1]
    headline = last.diagnosis.headline
    missed = None
    if scenario.expected and headline.verdict not in scenario.expected:
        missed = f"{headline.verdict}: {headline.summary}"
    elif not scenario.expected and alarms:
        missed = f"incidents though nothing was wrong: {', '.join(alarms)}"
    elif headline.verdict is Verdict.POOL_LEAK and truth:
        missed = _wrong_leaks(headline, truth, last)
    elif headline.verdict is Verdict.HEALTHY and any(act["fault"] == CLOCK_STEP for act in truth):
        is_marked = any(each.name == "clock_steps_seconds" for each in headline.evidence)
        missed = None if is_marked else "the clock was set, and the answer does not tell"
    return Outcome(
        scenario=scenario.name,
        faults=tuple(case.fault for case in scenario.faults),
        load=scenario.traffic.load,
        verdict=headline.verdict,
        seconds_to_verdict=_seconds_to(scenario, looks),
        missed=missed,
        forbidden=_forbidden(scenario, headline),
        false_alarms=tuple(alarms),
        engine_seconds=last.at_seconds,
    )


def _seconds_to(scenario: Scenario, looks: Sequence[Look]) -> float | None:
    for look in looks:
        if look.diagnosis.verdict in scenario.expected and (
            look.at_seconds >= scenario.begins_seconds
        ):
            return round(look.at_seconds - scenario.begins_seconds, 1)
    return None


def _forbidden(scenario: Scenario, headline: Finding) -> tuple[str, ...]:
    found = []
    if scenario.expected and headline.verdict is Verdict.HEALTHY:
        found.append(Verdict.HEALTHY.value)
    forbids = {action for case in scenario.faults for action in case.forbids}
    if headline.action in forbids:
        found.append(headline.action.value)
    return tuple(found)


def _wrong_leaks(finding: Finding, truth: Sequence[Mapping[str, object]], last: Look) -> str | None:
    """Say how the named blocks and owners differ from those that were leaked."""
    said = {each.name: each for each in finding.evidence}
    acts = [act for act in truth if act["fault"] in LEAKS and _seconds(act) <= last.at_seconds]
    sure = _leaked([act for act in acts if could_be_told(_seconds(act), last)])
    possible = _leaked(acts)
    for name, least, most in (
        ("leaked_blocks", sure.blocks, possible.blocks),
        ("leaking_owners", sure.owners, possible.owners),
    ):
        named = _numbers(said[name])
        # Who it was may be lost with events; then that is said, and nobody else is named.
        is_told = name == "leaking_owners" and "blocks_of_unknown_owners" in said
        if not named <= most or not (is_told or least <= named):
            return f"{name}: {sorted(least - named)} not named, {sorted(named - most)} are none"
    return None


@dataclass(frozen=True, slots=True)
class Leaked:
    """What was really leaked up to a moment."""

    blocks: frozenset[int]
    owners: frozenset[int]


def could_be_told(leaked_at_seconds: float, last: Look) -> bool:
    """Say whether the grace of a leak has passed once without a gap, up to the last look."""
    known_from = leaked_at_seconds
    for lost in last.lost:
        if lost.start_seconds - known_from >= LEAK_GRACE_SECONDS:
            return True
        known_from = max(known_from, lost.end_seconds)
    return last.at_seconds - known_from >= LEAK_GRACE_SECONDS


def _seconds(act: Mapping[str, object]) -> float:
    t_ns = act["t_ns"]
    assert isinstance(t_ns, int)
    return t_ns / 1e9


def _leaked(acts: Sequence[Mapping[str, object]]) -> Leaked:
    blocks: set[int] = set()
    owners: set[int] = set()
    for act in acts:
        of_act, owner = act["blocks"], act["owner"]
        assert isinstance(of_act, list)
        assert isinstance(owner, int)
        if of_act:
            blocks.update(of_act)
            owners.add(owner)
    return Leaked(frozenset(blocks), frozenset(owners))


def _numbers(evidence: Evidence) -> frozenset[int]:
    value = evidence.value
    assert isinstance(value, list)
    return frozenset(value)


def summary(outcomes: Sequence[Outcome]) -> dict[str, object]:
    """Return the drill's answer; the keys are API."""
    return {
        "runs": len(outcomes),
        "missed": [{"run": o.scenario, "why": o.missed} for o in outcomes if o.missed],
        "forbidden": [{"run": o.scenario, "said": o.forbidden} for o in outcomes if o.forbidden],
        "false_alarms": [
            {"run": o.scenario, "said": o.false_alarms} for o in outcomes if o.false_alarms
        ],
        "matrix": matrix(outcomes),
        "seconds_to_verdict": times(outcomes),
        "engine_hours_healthy": round(
            sum(o.engine_seconds for o in outcomes if not o.faults) / 3_600, 2
        ),
    }


def matrix(outcomes: Sequence[Outcome]) -> dict[str, dict[str, int]]:
    """Return, for each fault (or `none`), how often which verdict was said."""
    rows: dict[str, Counter[str]] = {}
    for outcome in outcomes:
        name = "+".join(outcome.faults) or "none"
        rows.setdefault(name, Counter())[outcome.verdict.value] += 1
    return {name: dict(row) for name, row in rows.items()}


def times(outcomes: Sequence[Outcome]) -> dict[str, dict[str, float | int]]:
    """Return the time to the right verdict per single fault: least, median and most seconds."""
    found: dict[str, list[float]] = {}
    for outcome in outcomes:
        if len(outcome.faults) == 1 and outcome.seconds_to_verdict is not None:
            found.setdefault(outcome.faults[0], []).append(outcome.seconds_to_verdict)
    return {
        fault: {"least": min(t), "median": sorted(t)[len(t) // 2], "most": max(t), "runs": len(t)}
        for fault, t in found.items()
    }
