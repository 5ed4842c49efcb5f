"""What the explanations of a drill came to, and whether that is good enough."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from engine.decomposition_drill.plan import Case
from engine.explain.explanation import Answer, Explanation

LEAST_RATIO: Final = 0.80  # of the change, to the group that changed
MOST_MISSED: Final = 0.05  # 1 of 20
EXPECTED: Final = {
    Case.NOTHING: Answer.NO_CHANGE,
    Case.STALLED: Answer.CANNOT_BE_EXPLAINED,
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """One pair, explained.

    Attributes:
        ratio: What the group that changed got of the change; None: nothing was explained.
        fidelity: The lower of the two.
    """

    case: Case
    seed: int
    answer: Answer
    ratio: float | None
    fidelity: float

    @property
    def is_right(self) -> bool:
        """Whether it is the explanation that is known to be right."""
        if self.case in EXPECTED:
            return self.answer is EXPECTED[self.case]
        return self.ratio is not None and self.ratio >= LEAST_RATIO


def outcome_of(case: Case, seed: int, explanation: Explanation) -> Outcome:
    """Keep what counts of an explanation."""
    ratios = {share.group: share.ratio for share in explanation.shares}
    fidelity = min(explanation.fidelity.first or 0.0, explanation.fidelity.second or 0.0)
    return Outcome(case, seed, explanation.answer, ratios.get(case.value), fidelity)


def summary(outcomes: Iterable[Outcome]) -> dict[str, object]:
    """Return `table` (by case: runs, right, least share, fidelity) and the `failed` cases."""
    cases: dict[Case, list[Outcome]] = {}
    for outcome in outcomes:
        cases.setdefault(outcome.case, []).append(outcome)
    table = {case.value: _row(its) for case, its in cases.items()}
    failed = [
        case.value
        for case, its in cases.items()
        if sum(not outcome.is_right for outcome in its) > MOST_MISSED * len(its)
    ]
    return {"table": table, "failed": failed}


def _row(outcomes: list[Outcome]) -> dict[str, object]:
    ratios = sorted(one.ratio for one in outcomes if one.ratio is not None)
    fidelities = [one.fidelity for one in outcomes]
    return {
        "runs": len(outcomes),
        "right": sum(one.is_right for one in outcomes),
        "wrong_seeds": [one.seed for one in outcomes if not one.is_right],
        "least_ratio": ratios[0] if ratios else None,
        "median_ratio": ratios[len(ratios) // 2] if ratios else None,
        "least_fidelity": min(fidelities),
        "most_fidelity": max(fidelities),
    }
