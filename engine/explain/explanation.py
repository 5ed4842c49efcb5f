"""What an explanation answers with: frozen values, nothing to compute."""

from dataclasses import dataclass
from enum import StrEnum

from engine.explain.speeds import StepSpeeds


class Answer(StrEnum):
    """Whether there is a difference, and whether it can be explained."""

    EXPLAINED = "explained"
    NO_CHANGE = "no_change"
    CANNOT_BE_EXPLAINED = "cannot_be_explained"


@dataclass(frozen=True, slots=True)
class Pair:
    """A figure of both sides; None is not known."""

    first: float | None
    second: float | None


@dataclass(frozen=True, slots=True)
class Change:
    """A change in seconds, and the interval in which it lies with 99 % confidence."""

    seconds: float
    low: float
    high: float

    @property
    def is_beyond_chance(self) -> bool:
        """Whether the interval leaves 0 out."""
        return not self.low <= 0 <= self.high


@dataclass(frozen=True, slots=True)
class Share:
    """What one group of differences makes of the change.

    Attributes:
        ratio: Of the whole change; below 0 it works against it.
    """

    group: str
    label: str
    change: Change
    ratio: float


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why the mean time to first token of the second recording is not that of the first.

    Attributes:
        recorded: Mean TTFT as it was, in seconds.
        replayed: The same of the replays of each side as it was.
        fidelity: 1 less the relative error of the replay, not below 0.
        change: Of the replays, second less first; None: it cannot be told.
        shares: They sum to the change; empty unless it is explained.
        why_not: Why it cannot be explained; empty otherwise.
        notes: What an engine states and the simulator cannot do.
    """

    answer: Answer
    window_seconds: float
    recorded: Pair
    replayed: Pair
    fidelity: Pair
    change: Change | None = None
    shares: tuple[Share, ...] = ()
    speeds: tuple[StepSpeeds, ...] = ()
    num_replays: int = 0
    why_not: str = ""
    notes: tuple[str, ...] = ()
