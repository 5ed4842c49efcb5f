"""Judge facts: every rule is asked, then the worst cause becomes the headline. Pure."""

from collections.abc import Callable, Sequence
from typing import Final

from agent.triage.facts import Facts
from agent.triage.rules import books, demand, engine, pool, scheduler, speed, telemetry
from agent.triage.severity import unmeasured, with_targets
from agent.triage.thresholds import Thresholds
from agent.triage.verdicts import Diagnosis, Finding, Verdict

Rule = Callable[[Facts, Thresholds], Finding | None]

RULES: Final[tuple[Rule, ...]] = (
    telemetry.stale,
    engine.engine_down,
    engine.stalled,
    engine.livelock,
    books.ledger_broken,
    books.pool_leak,
    books.pool_leak_by_bound,
    pool.never_fits,
    pool.pool_exhausted,
    pool.head_of_line,
    pool.preemption_thrash,
    scheduler.batch_slots,
    scheduler.token_budget,
    scheduler.tenant_quota,
    demand.tenant_hog,
    demand.traffic_shift,
    speed.compute_slow,
    speed.frontend_slow,
    telemetry.incomplete,
    telemetry.unproved_leak,
    telemetry.unexplained,
)

# What outranks everything below it, however little it costs just now: without an engine nothing
# else is so; broken books make every other number doubtful; what stands still or leaks gets worse
# with any other remedy. Within one rank the cost decides.
RANKS: Final = {
    Verdict.ENGINE_DOWN: 0,
    Verdict.STALLED: 1,
    Verdict.LIVELOCK: 1,
    Verdict.LEDGER_BROKEN: 2,
    Verdict.POOL_LEAK: 2,
    Verdict.TELEMETRY_INCOMPLETE: 5,
    Verdict.UNKNOWN: 6,
    Verdict.HEALTHY: 7,
}
RANK_OF_DOUBT: Final = 3
RANK_OF_COST: Final = 4


def judge(facts: Facts, thresholds: Thresholds | None = None) -> Diagnosis:
    """Return the one cause, and what else holds."""
    limits = thresholds or Thresholds()
    found = [finding for rule in RULES if (finding := rule(facts, limits)) is not None]
    blind = engine.silent(facts, limits) or telemetry.stale(facts, limits)
    if blind is not None:
        # Whatever else holds is of the past and must not be taken for the present.
        found = [blind]
    if not found:
        found = [telemetry.healthy(facts, limits)]
    found = [with_targets(finding, facts) for finding in found]
    causes = unexplained(found)
    order = _order(found)
    headline, *_ = sorted(causes, key=order)
    rest = sorted((each for each in found if each is not headline), key=order)
    return Diagnosis(
        engine=facts.run.engine,
        run_id=facts.run.run_id,
        start_ns=facts.start_ns,
        end_ns=facts.end_ns,
        headline=headline,
        contributing=tuple(rest),
        missing={**facts.missing, **unmeasured(facts.targets)},
        causes=tuple(causes),
    )


def severity(diagnosis: Diagnosis) -> tuple[int, float, str]:
    """Return what sorts diagnoses, the worst first."""
    finding = diagnosis.headline
    return _rank(finding), -finding.impact, diagnosis.engine


def _rank(finding: Finding) -> int:
    return RANK_OF_DOUBT if finding.casts_doubt else RANKS.get(finding.verdict, RANK_OF_COST)


def unexplained(found: Sequence[Finding]) -> list[Finding]:
    """Return the causes: findings that no other one explains.

    What is explained is a consequence. It is no headline, and its cost is its cause's.
    """
    causes = [each for each in found if not any(_explains(other, each) for other in found)]
    return causes or list(found)


def _explains(cause: Finding, effect: Finding) -> bool:
    if cause is effect or effect.verdict not in cause.explains:
        return False
    # Two that explain each other: the dearer one is the cause.
    return cause.verdict not in effect.explains or _cost(cause) > _cost(effect)


def _cost(finding: Finding) -> tuple[float, str]:
    return finding.impact, finding.verdict.value


def _order(found: Sequence[Finding]) -> Callable[[Finding], tuple[int, float, str]]:
    def key(finding: Finding) -> tuple[int, float, str]:
        explained = [each.impact for each in found if each.verdict in finding.explains]
        cost = max([finding.impact, *explained])
        return _rank(finding), -cost, finding.verdict.value

    return key
