"""What goes first when a store outgrows its budget: a pure plan over what each kind of data weighs.

Kinds are ordered from detail to summary. Each has a share of the budget, so that years of summaries
cannot push out the detail of the last hour; what is above its share goes, the finest kind first.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
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
    GPUS = "gpu_minutes"  # of machines, not of engines: older or newer than nothing else here
    HOURS = "rollups_3600s"


TIER_OF: Final = {Held.SECONDS: 1, Held.TENS: 10, Held.MINUTES: 60, Held.HOURS: 3600}
SHARES: Final = {
    Held.DETAIL: 0.50,
    Held.MAPS: 0.05,
    Held.REQUESTS: 0.10,
    Held.SECONDS: 0.19,
    Held.TENS: 0.08,
    Held.MINUTES: 0.05,
    Held.GPUS: 0.01,
    Held.HOURS: 0.02,
}
ROOM_RATIO: Final = 0.05  # of the budget, freed beyond it, so that pruning is not done all the time
REQUEST_BYTES: Final = 400  # a row with its indexes, roughly; figures are scaled to the whole file
INTERVAL_BYTES: Final = 500  # a rollup interval with its latencies and labels, roughly
PINNED_RATIO: Final = 0.2  # of the budget, for what is around incidents
AROUND_NS: Final = 600_000_000_000  # kept before an incident opened and after it closed


class Pin(NamedTuple):
    """A stretch of one run, in wall time, that is kept while there is room for pins."""

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


class PinnedSlice(NamedTuple):
    """What a part of a pin takes."""

    start_at_ns: int
    num_bytes: int


def merged(pins: Iterable[Pin]) -> list[Pin]:
    """Return pins that do not overlap and keep the same, the newest first."""
    found: list[Pin] = []
    for pin in sorted(pins):
        last = found[-1] if found else None
        if last is not None and last.covers(pin.run_key, pin.start_at_ns, pin.end_at_ns):
            found[-1] = last._replace(end_at_ns=max(last.end_at_ns, pin.end_at_ns))
        else:
            found.append(pin)
    return sorted(found, key=lambda pin: (-pin.end_at_ns, pin.run_key))


def within_limit(
    pins: Iterable[Pin], slices: Callable[[Pin], Iterable[PinnedSlice]], limit_bytes: int
) -> list[Pin]:
    """Return what is kept of pins, the newest first: the oldest part is given up beyond a limit.

    Args:
        pins: Not overlapping, the newest first.
        slices: What a pin is made of, the newest first.
    """
    kept: list[Pin] = []
    left = limit_bytes
    for pin in pins:
        start_at_ns = None
        is_whole = True
        for part in slices(pin):
            left -= part.num_bytes
            if left < 0:
                is_whole = False
                break
            start_at_ns = part.start_at_ns
        if is_whole:
            kept.append(pin)
        elif start_at_ns is not None:
            kept.append(pin._replace(start_at_ns=max(pin.start_at_ns, start_at_ns)))
        if not is_whole:
            break
    return kept


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
    if kind is Held.GPUS:
        return ()
    kinds = [each for each in Held if each is not Held.GPUS]
    return kinds[: kinds.index(kind)]
