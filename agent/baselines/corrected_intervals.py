"""Intervals that hold for all judged metrics together: Student's t under Holm's correction.

Twenty blocks a side are few, so the spread between draws is turned into an interval by Student's t
with Welch's degrees of freedom, and not by a normal distribution.

Sources: Holm, A simple sequentially rejective multiple test procedure (1979); Welch (1947);
Abramowitz and Stegun 26.7.8 for t as a function of z (numpy has no t distribution).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

FAMILY_ALPHA: Final = 0.02  # of any false alarm at all, both directions together
POWER: Final = 0.80
_NORMAL: Final = NormalDist()


@dataclass(frozen=True, slots=True)
class Change:
    """A difference between two sides, and how well it is known.

    Attributes:
        degrees: Of freedom, of `error`.
    """

    difference: float
    error: float
    degrees: float

    @property
    def p_value(self) -> float:
        """How likely a difference at least as large is where nothing changed, either direction."""
        if self.error <= 0:
            return 1.0 if self.difference == 0 else 0.0
        t = abs(self.difference) / self.error
        z = t * (1 - 1 / (4 * self.degrees)) / (1 + t * t / (2 * self.degrees)) ** 0.5
        return 2 * _NORMAL.cdf(-z)

    def half_width(self, alpha: float) -> float:
        """Return half the interval's width at a level."""
        return t_quantile(1 - alpha / 2, self.degrees) * self.error


def t_quantile(probability: float, degrees: float) -> float:
    """Return Student's t quantile for a probability above 1/2; within 1 % from 15 degrees on."""
    z = _NORMAL.inv_cdf(probability)
    rest = (1 - 1 / (4 * degrees)) ** 2 - z * z / (2 * degrees)
    return float("inf") if rest <= 0 else z / rest**0.5


def welch_degrees(errors: Sequence[float], num_blocks: Sequence[int]) -> float:
    """Return the degrees of freedom of the error of a difference of two means."""
    squares = [error**2 for error in errors]
    total = sum(squares)
    if total <= 0:
        return float(min(num_blocks) - 1)
    return total**2 / sum(s * s / (n - 1) for s, n in zip(squares, num_blocks, strict=True))


def holm_levels(p_values: Sequence[float], *, alpha: float = FAMILY_ALPHA) -> list[float]:
    """Return for each metric the level at which its interval is to be drawn.

    An interval at that level leaves 0 out exactly if Holm's procedure rejects "nothing changed".
    """
    num = len(p_values)
    levels = [alpha] * num
    stopped: float | None = None
    for rank, place in enumerate(sorted(range(num), key=lambda place: p_values[place])):
        level = alpha / (num - rank) if stopped is None else stopped
        levels[place] = level
        if p_values[place] >= level:
            stopped = level
    return levels


def smallest_seen(change: Change, alpha: float) -> float:
    """Return the true difference that would leave 0 out of its interval four times in five."""
    return change.half_width(alpha) + t_quantile(POWER, change.degrees) * change.error
