"""Which runs are compared, and what must come out."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

LOADS: Final = (0.5, 0.8, 0.95)
POOL_LOAD: Final = 0.8
DECODE_SLOWER: Final = 1.2
POOL_SMALLER: Final = 0.75
NUM_ALIKE: Final = 100
NUM_CHANGED: Final = 20
SHORT_HOURS: Final = 1.0
LONG_HOURS: Final = 4.0


class Case(StrEnum):
    """What the second engine is beside the first."""

    ALIKE_SHORT = "alike_1h"
    ALIKE_LONG = "alike_4h"
    DECODE_SLOWER = "decode_slower"
    POOL_SMALLER = "pool_smaller"


@dataclass(frozen=True, slots=True)
class RunPlan:
    """One engine, as `engine.simulation.steady_traffic.SteadyRun` takes it."""

    load: float
    hours: float
    seed: int
    decode_ratio: float = 1.0
    pool_ratio: float = 1.0


@dataclass(frozen=True, slots=True)
class PairPlan:
    """Two engines to be compared."""

    case: Case
    first: RunPlan
    second: RunPlan


def plan_pairs(*, num_alike: int = NUM_ALIKE, num_changed: int = NUM_CHANGED) -> Iterator[PairPlan]:
    """Yield the pairs; no two runs have the same seed, and the loads take turns."""
    seeds = iter(range(1, 10**9))
    lengths = ((Case.ALIKE_SHORT, SHORT_HOURS), (Case.ALIKE_LONG, LONG_HOURS))
    for number in range(num_alike):
        load = LOADS[number % len(LOADS)]
        for case, hours in lengths:
            first, second = (RunPlan(load, hours, next(seeds)) for _ in range(2))
            yield PairPlan(case, first, second)
    for number in range(num_changed):
        load = LOADS[number % len(LOADS)]
        first = RunPlan(load, LONG_HOURS, next(seeds))
        slower = RunPlan(load, LONG_HOURS, next(seeds), decode_ratio=DECODE_SLOWER)
        yield PairPlan(Case.DECODE_SLOWER, first, slower)
        first = RunPlan(POOL_LOAD, LONG_HOURS, next(seeds))
        smaller = RunPlan(POOL_LOAD, LONG_HOURS, next(seeds), pool_ratio=POOL_SMALLER)
        yield PairPlan(Case.POOL_SMALLER, first, smaller)
