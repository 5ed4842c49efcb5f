"""Hold a window against a baseline: better, same, worse or unknown. Pure and repeatable.

`worse` needs both: an interval, corrected for the number of judged metrics, that leaves 0 out, and
a change beyond the metric's floor. `same` says how large a change would have been seen; where the
windows are too short for an interval that can be believed, the answer is `unknown`.
"""

from dataclasses import dataclass
from typing import Final

from agent.baselines.block_bootstrap import FEWEST_BLOCKS, Blocks, choose_blocks
from agent.baselines.comparison import Answer, Comparison, Finding, ShownFigure
from agent.baselines.corrected_intervals import (
    FAMILY_ALPHA,
    Change,
    holm_levels,
    smallest_seen,
    welch_degrees,
)
from agent.baselines.estimate import Measured, measure, value_of
from agent.baselines.metrics import JUDGED, SHOWN, Metric, RatioMetric
from agent.baselines.side import FEWEST_COUNTED_RATIO, Side, config_differences
from agent.baselines.traffic import differences
from agent.baselines.where import where
from agent.baselines.window_series import WindowSeries

SEED: Final = 20_261_130
NOT_SEEN: Final = 3.0  # nothing seen in n: below 3 / n with 95 % confidence
SECONDS_PER_HOUR: Final = 3600


@dataclass(frozen=True, slots=True)
class _Judged:
    """A metric on both sides, on its way to a finding."""

    metric: Metric
    first: Measured | None
    second: Measured | None
    change: Change | None
    block_seconds: float | None
    why_unknown: str

    @property
    def is_absent(self) -> bool:
        """Whether neither side measures it: then there is nothing to judge."""
        return self.first is None and self.second is None


def compare(first: Side, second: Side, *, seed: int = SEED) -> Comparison:
    """Hold `second` against `first`.

    Args:
        first: The baseline.
        seed: Of the resampling; the same one gives the same answer.
    """
    tier_seconds = max(first.series.tier_seconds, second.series.tier_seconds)
    series = (first.series.coarsened(tier_seconds), second.series.coarsened(tier_seconds))
    judged = [_judge(metric, *series, seed=seed + place) for place, metric in enumerate(JUDGED)]
    findings = _findings([one for one in judged if not one.is_absent])
    traffic = differences(first.traffic, second.traffic)
    measured = _overall(findings)
    reasons = _reasons(first, second, findings)
    if traffic:
        names = ", ".join(difference.label for difference in traffic)
        reasons = (f"traffic differs: {names}", *reasons)
    is_sound = _is_sound(first) and _is_sound(second)
    if_explained = measured if is_sound else Answer.UNKNOWN
    answer = Answer.UNKNOWN if traffic else if_explained
    return Comparison(
        first=first,
        second=second,
        answer=answer,
        measured=measured,
        if_explained=if_explained,
        why_unknown=reasons if answer is Answer.UNKNOWN else (),
        findings=findings,
        shown=tuple(_shown(metric, *series) for metric in SHOWN),
        traffic_differences=traffic,
        config_differences=config_differences(first, second),
        where=where(*series),
    )


def _judge(metric: Metric, first: WindowSeries, second: WindowSeries, *, seed: int) -> _Judged:
    sides = (measure(metric, first), measure(metric, second))
    a, b = sides
    if a is None or b is None:
        missing = "the first" if a is None else "the second"
        return _Judged(metric, a, b, None, None, f"not measured on {missing} side")
    if a.value is None or b.value is None or not (a.has_enough_samples and b.has_enough_samples):
        fewest = min(a.num_samples, b.num_samples)
        return _Judged(metric, a, b, None, None, f"only {fewest} samples on one side")
    tau = max(a.tau, b.tau)
    cuts = (choose_blocks(tau, a.num_counted), choose_blocks(tau, b.num_counted))
    block_seconds = float(cuts[0].length * first.tier_seconds)
    if not all(cut.is_enough for cut in cuts):
        return _Judged(metric, a, b, None, block_seconds, _too_short(tau, cuts, first.tier_seconds))
    errors = [
        side.standard_error(cut, seed=2 * seed + place)
        for place, (side, cut) in enumerate(zip((a, b), cuts, strict=True))
    ]
    degrees = welch_degrees(errors, [cut.num_blocks for cut in cuts])
    change = Change(b.value - a.value, float(sum(e * e for e in errors) ** 0.5), degrees)
    return _Judged(metric, a, b, change, block_seconds, "")


def _too_short(tau: float, cuts: tuple[Blocks, Blocks], tier_seconds: int) -> str:
    needed = FEWEST_BLOCKS * cuts[0].length * tier_seconds / SECONDS_PER_HOUR
    fewest = min(cut.num_blocks for cut in cuts)
    return (
        f"it moves slowly (over {tau * tier_seconds:.0f} s): the shorter side has {fewest}"
        f" independent blocks of the {FEWEST_BLOCKS} needed; compare at least {needed:.1f} h"
    )


def _findings(judged: list[_Judged]) -> tuple[Finding, ...]:
    p_values = [1.0 if one.change is None else one.change.p_value for one in judged]
    levels = holm_levels(p_values)
    strictest = FAMILY_ALPHA / max(len(judged), 1)
    return tuple(_finding(one, level, strictest) for one, level in zip(judged, levels, strict=True))


def _finding(one: _Judged, level: float, strictest: float) -> Finding:
    metric, a, b = one.metric, one.first, one.second
    first, second = value_of(a), value_of(b)
    if one.change is None or first is None or a is None or b is None:
        return Finding(
            metric.name,
            metric.label,
            metric.unit,
            Answer.UNKNOWN,
            first,
            second,
            block_seconds=one.block_seconds,
            why_unknown=one.why_unknown,
        )
    change = one.change
    half = change.half_width(level)
    low, high = change.difference - half, change.difference + half
    floor = max(metric.floor_ratio * first, metric.least_change)
    seen = max(floor, smallest_seen(change, strictest), _unseen(a, b))
    return Finding(
        metric.name,
        metric.label,
        metric.unit,
        _answer(change.difference, low, high, floor),
        first,
        second,
        low,
        high,
        floor,
        seen,
        one.block_seconds,
    )


def _answer(difference: float, low: float, high: float, floor: float) -> Answer:
    """Judge a change; for every judged metric, more is worse."""
    if low > 0 and difference > floor:
        return Answer.WORSE
    if high < 0 and -difference > floor:
        return Answer.BETTER
    return Answer.SAME


def _unseen(a: Measured, b: Measured) -> float:
    """Return how much of what was counted on neither side may be there all the same."""
    is_count = isinstance(a.metric, RatioMetric) and a.metric.is_count
    if not is_count or a.num_events or b.num_events:
        return 0.0
    return NOT_SEEN / min(a.num_samples, b.num_samples)


def _overall(findings: tuple[Finding, ...]) -> Answer:
    """The worst of the findings; what is not known weighs more than what is good."""
    answers = {finding.answer for finding in findings}
    for answer in (Answer.WORSE, Answer.UNKNOWN, Answer.BETTER):
        if answer in answers:
            return answer
    return Answer.SAME if findings else Answer.UNKNOWN


def _reasons(first: Side, second: Side, findings: tuple[Finding, ...]) -> tuple[str, ...]:
    sides = [reason for side in (first, second) for reason in _side_reasons(side)]
    unknown = [f"{f.label}: {f.why_unknown}" for f in findings if f.answer is Answer.UNKNOWN]
    return (*sides, *unknown) if findings else (*sides, "no judged metric was measured")


def _side_reasons(side: Side) -> list[str]:
    reasons = []
    completeness = side.completeness
    if completeness.counted_ratio < FEWEST_COUNTED_RATIO:
        reasons.append(f"{side.label}: only {completeness.counted_ratio:.0%} of it was recorded")
    if completeness.num_configs > 1:
        reasons.append(f"{side.label}: its configuration changed inside the window")
    return reasons


def _is_sound(side: Side) -> bool:
    return not _side_reasons(side)


def _shown(metric: Metric, first: WindowSeries, second: WindowSeries) -> ShownFigure:
    values = (value_of(measure(metric, series)) for series in (first, second))
    return ShownFigure(metric.name, metric.label, metric.unit, *values)
