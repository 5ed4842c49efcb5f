"""Which pairs are explained."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from engine.faults.spec import FaultSpec
from engine.simulation.changed_run import Changed, ChangedRun, with_change

SECONDS: Final = 1_440.0
NUM_SEEDS: Final = 20
NUM_QUICK: Final = 2
# A minute in which nobody is admitted: no simulator knows why.
STALL: Final = FaultSpec("stall_admission", {"after_seconds": "600", "for_seconds": "60"})


class Case(StrEnum):
    """What differs; a group's name is that of `engine.explain.groups.Group`, in lower case."""

    NOTHING = "nothing"
    LENGTHS = "lengths"
    ARRIVALS = "arrivals"
    PREFILL_SPEED = "prefill_speed"
    DECODE_SPEED = "decode_speed"
    SETTINGS = "settings"
    STALLED = "stalled"


@dataclass(frozen=True, slots=True)
class PairPlan:
    """Two runs, and the faults of the second."""

    case: Case
    seed: int
    first: ChangedRun
    second: ChangedRun
    faults: tuple[FaultSpec, ...] = ()


def plan_pairs(num_seeds: int) -> Iterator[PairPlan]:
    """Yield the pairs, the cases in turns; no two runs have the same seed."""
    seeds = iter(range(1, 10**9))
    for seed in range(1, num_seeds + 1):
        for case in Case:
            first, second = (ChangedRun(SECONDS, next(seeds)) for _ in range(2))
            if case is Case.STALLED:
                yield PairPlan(case, seed, first, second, (STALL,))
            else:
                yield PairPlan(case, seed, first, with_change(second, Changed(case.value)))
