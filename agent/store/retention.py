"""What goes first when a store outgrows its budget: a pure plan over what each kind of data weighs.

Kinds are ordered from detail to summary. Each has a share of the budget, so that years of summaries
cannot push out the detail of the last hour; what is above its share goes, the finest kind first.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple


class Held(StrEnum):
    """A kind of stored data, from what goes first to what stays longest."""

    DETAIL = "detail"  # chunks: any moment can be rebuilt from them
    MAPS = "maps"  # snapshots whose chunks are gone
    REQUESTS = "requests"
    SECONDS = "rollups_1s"
    TENS = "rollups_10s"
    MINUTES = "rollups_60s"
    HOURS = "rollups_3600s"


TIER_OF: Final = {Held.SECONDS: 1, Held.TENS: 10, Held.MINUTES: 60, Held.HOURS: 3600}
SHARES: Final = {
    Held.DETAIL: 0.50,
    Held.MAPS: 0.05,
    Held.REQUESTS: 0.10,
    Held.SECONDS: 0.20,
    Held.TENS: 0.08,
    Held.MINUTES: 0.05,
    Held.HOURS: 0.02,
}
ROOM_RATIO: Final = 0.05  # of the budget, freed beyond it, so that pruning is not done all the time
PINNED_RATIO: Final = 0.2  # of the budget, for detail around incidents
AROUND_NS: Final = 60_000_000_000  # kept before an incident opened and after it closed


class Pin(NamedTuple):
    """A stretch of one run, in wall time, whose detail is kept while there is room for pins."""

    run_key: int
    start_at_ns: int
    end_at_ns: int

    def covers(self, run_key: int, start_at_ns: int, end_at_ns: int) -> bool:
        """Return whether any of `[start, end]` of a run is pinned."""
        return (
            run_key == self.run_key
            and start_at_ns <= self.end_at_ns
            and end_at_ns >= self.start_at_ns
        )


def plan(weights: Mapping[Held, int], used: int, budget: int) -> dict[Held, int]:
    """Return how many bytes each kind gives up; nothing while the store is within its budget.

    Args:
        weights: Bytes that each kind may give up at most.
        used: Bytes of the whole store.
        budget: What it may have.
    """
    if used <= budget:
        return {}
    excess = used - int(budget * (1 - ROOM_RATIO))
    given: dict[Held, int] = {}
    # Above their shares first; what then still is too much is taken from the finest on.
    for floor in (SHARES, dict.fromkeys(Held, 0.0)):
        for kind in Held:
            left = weights.get(kind, 0) - given.get(kind, 0)
            bytes_over = min(excess, left - int(floor[kind] * budget))
            if bytes_over > 0:
                given[kind] = given.get(kind, 0) + bytes_over
                excess -= bytes_over
    return {kind: given[kind] for kind in Held if kind in given}


def finer_than(kind: Held) -> Sequence[Held]:
    """Return the kinds that never reach further back than this one."""
    kinds = list(Held)
    return kinds[: kinds.index(kind)]
