"""One value of one metric, and where in the live state it comes from."""

from typing import NamedTuple

from agent.metrics.metric import Metric
from agent.rollups.rebucket import Bucketed


class Sample(NamedTuple):
    """One value of one metric; `labels` are those after engine and model_name."""

    metric: Metric
    labels: tuple[str, ...]
    value: float | Bucketed


class From(NamedTuple):
    """Which number of the live state feeds a metric, and by what it is divided."""

    metric: Metric
    key: str
    divisor: int = 1
