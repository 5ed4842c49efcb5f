"""What a comparison answers with: frozen values, nothing to compute."""

from dataclasses import dataclass
from enum import StrEnum

from agent.baselines.side import ConfigDifference, Side
from agent.baselines.traffic import TrafficDifference
from agent.baselines.where import Where


class Answer(StrEnum):
    """How the second side stands to the first."""

    BETTER = "better"
    SAME = "same"
    WORSE = "worse"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Finding:
    """One judged metric.

    Attributes:
        first, second: The sides' values in the metric's unit; None: not measured.
        low, high: The corrected interval of second - first; None where there is none.
        smallest_seen: The smallest change that would have been called one, four times in five.
        why_unknown: Empty unless the answer is `unknown`.
    """

    name: str
    label: str
    unit: str
    answer: Answer
    first: float | None
    second: float | None
    low: float | None = None
    high: float | None = None
    floor: float | None = None
    smallest_seen: float | None = None
    block_seconds: float | None = None
    why_unknown: str = ""


@dataclass(frozen=True, slots=True)
class ShownFigure:
    """A metric that is shown and not judged."""

    name: str
    label: str
    unit: str
    first: float | None
    second: float | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """A window held against a baseline.

    Attributes:
        answer: What a command or a page says.
        measured: What the judged metrics say, whatever the traffic was. Whoever has explained a
            difference of traffic (the decomposition) may rely on it instead.
        why_unknown: Reasons; empty unless `answer` is `unknown`.
        if_explained: The answer once what the traffic did to it is known otherwise: `measured`, if
            both sides are complete and of one configuration each.
        where: In which waits the mean TTFT changed.
    """

    first: Side
    second: Side
    answer: Answer
    measured: Answer
    if_explained: Answer
    why_unknown: tuple[str, ...]
    findings: tuple[Finding, ...]
    shown: tuple[ShownFigure, ...]
    traffic_differences: tuple[TrafficDifference, ...]
    config_differences: tuple[ConfigDifference, ...]
    where: Where
