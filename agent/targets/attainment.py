"""How much of a window was within a target, and how fast that spends its error budget. Pure."""

from dataclasses import dataclass
from typing import Final

from agent.duration import duration_text
from agent.rollups.histogram import Histogram
from agent.rollups.rebucket import rebucket
from agent.targets.target import Target

WINDOWS_SECONDS: Final = (300, 3_600)  # one that notices, one that was no mere moment
LEAST_SAMPLES: Final = 20  # with fewer, one slow request would be a missed target


@dataclass(frozen=True, slots=True)
class Attainment:
    """One target over one window.

    Attributes:
        samples: What was measured in the window: first tokens, gaps between tokens, waits.
        within: Of these, how many took no longer than the target. One within 2.2 % of it may be
            counted on the other side.
    """

    target: Target
    window_seconds: int
    samples: int
    within: int

    @property
    def window(self) -> str:
        """Return the window as a label: `5m`, `1h`."""
        return duration_text(self.window_seconds)

    @property
    def within_ratio(self) -> float | None:
        """Return the share within the target; None: too few samples to say."""
        return self.within / self.samples if self.samples >= LEAST_SAMPLES else None

    @property
    def burn_rate(self) -> float | None:
        """Return how many times faster than allowed the error budget is spent; None as above.

        1 spends just what the objective leaves. Source: The Site Reliability Workbook, chapter 5.
        """
        if self.within_ratio is None:
            return None
        missed_ratio = (self.samples - self.within) / self.samples
        return missed_ratio / (1 - self.target.objective_ratio)

    @property
    def is_missed(self) -> bool:
        """Whether fewer than the objective were within the target, as far as is known."""
        ratio = self.within_ratio
        return ratio is not None and ratio < self.target.objective_ratio


def attainment(target: Target, window_seconds: int, measured: Histogram) -> Attainment:
    """Hold what was measured over a window against a target."""
    (_, within), _ = rebucket(measured, (target.seconds,)).buckets
    return Attainment(target, window_seconds, measured.count, within)
