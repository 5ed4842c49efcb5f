"""What the comparisons of a drill came to, and whether that is good enough."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from agent.baseline_drill.plan import Case, PairPlan
from agent.baselines.comparison import Answer, Comparison

MOST_FALSE_ALARMS: Final = 0.05
FEWEST_POOL_SEEN: Final = 0.85
INTER_TOKEN: Final = frozenset({"inter_token_p50", "inter_token_p95"})
POOL: Final = frozenset({"pool_wait", "ttft_p50", "ttft_p95"})


@dataclass(frozen=True, slots=True)
class Outcome:
    """One pair, compared.

    Attributes:
        worse: Names of the judged metrics that are worse.
    """

    plan: PairPlan
    answer: Answer
    worse: frozenset[str]

    @property
    def is_seen(self) -> bool:
        """Whether the change shows where it must; for engines that are alike, a false alarm."""
        if self.plan.case is Case.DECODE_SLOWER:
            return bool(self.worse & INTER_TOKEN)
        if self.plan.case is Case.POOL_SMALLER:
            return bool(self.worse & POOL)
        return self.answer is Answer.WORSE


def outcome_of(plan: PairPlan, comparison: Comparison) -> Outcome:
    """Keep what counts of a comparison."""
    worse = {f.name for f in comparison.findings if f.answer is Answer.WORSE}
    return Outcome(plan, comparison.answer, frozenset(worse))


def summary(outcomes: Iterable[Outcome]) -> dict[str, object]:
    """Return `table` (case and load: answers, and how many were seen) and `failed` cases."""
    table: dict[str, Counter[str]] = {}
    cases: dict[Case, list[Outcome]] = {}
    for outcome in outcomes:
        plan = outcome.plan
        row = table.setdefault(f"{plan.case.value} at {plan.first.load:g}", Counter())
        row[outcome.answer.value] += 1
        row["seen"] += outcome.is_seen
        cases.setdefault(plan.case, []).append(outcome)
    failed = [case.value for case, its in cases.items() if not _is_good(case, its)]
    return {"table": {name: dict(row) for name, row in table.items()}, "failed": failed}


def _is_good(case: Case, outcomes: list[Outcome]) -> bool:
    seen = sum(outcome.is_seen for outcome in outcomes) / len(outcomes)
    if case in (Case.ALIKE_SHORT, Case.ALIKE_LONG):
        return seen <= MOST_FALSE_ALARMS
    if any(outcome.answer is Answer.BETTER for outcome in outcomes):
        return False
    return seen >= (1.0 if case is Case.DECODE_SLOWER else FEWEST_POOL_SEEN)
