"""One side of a comparison: a series with what stands beside it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from agent.baselines.traffic import Traffic, traffic_of
from agent.baselines.window_series import WindowSeries

Stated = str | int | float | bool | None
FEWEST_COUNTED_RATIO: Final = 0.8  # below this a window says too little of itself


@dataclass(frozen=True, slots=True)
class Completeness:
    """How much of a window was recorded.

    Attributes:
        num_intervals: Of the window.
        num_not_recorded: Of those, intervals of which nothing is stored.
        num_in_gaps: Of those, intervals in which events were lost.
        events_lost: In the window.
        num_configs: Configurations that were in force in it.
    """

    num_intervals: int
    num_not_recorded: int
    num_in_gaps: int
    events_lost: int
    num_configs: int = 1

    @property
    def counted_ratio(self) -> float:
        """The part of the window that a comparison can use."""
        if not self.num_intervals:
            return 0.0
        left_out = self.num_not_recorded + self.num_in_gaps
        return 1 - left_out / self.num_intervals


@dataclass(frozen=True, slots=True)
class Side:
    """A saved baseline, or a window just read.

    Attributes:
        label: What people call it.
        fingerprint: What the engine stated of itself.
    """

    label: str
    engine: str
    series: WindowSeries
    completeness: Completeness
    fingerprint: Mapping[str, Stated] = field(default_factory=dict)

    @property
    def traffic(self) -> Traffic:
        """What the engine was asked to do."""
        return traffic_of(self.series)


@dataclass(frozen=True, slots=True)
class ConfigDifference:
    """One setting that the sides state differently; None: not stated."""

    name: str
    first: Stated
    second: Stated


def config_differences(first: Side, second: Side) -> tuple[ConfigDifference, ...]:
    """Return the settings that differ, by name."""
    a, b = first.fingerprint, second.fingerprint
    return tuple(
        ConfigDifference(name, a.get(name), b.get(name))
        for name in sorted({*a, *b})
        if a.get(name) != b.get(name)
    )
