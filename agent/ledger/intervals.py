"""Whole wall seconds over a stretch of events, and sums and samples of step functions in them."""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from agent.ledger.event_columns import Ints
from agent.ledger.runs import differences, heads_of

SECOND_NS: Final = 1_000_000_000
MAX_FILL: Final = 3600  # silent seconds that get a row of their own, for each silence


def interval_start(t_ns: int, *, wall_offset_ns: int, tier_seconds: int) -> int:
    """Return the engine time at which the interval around a time begins: a whole wall second."""
    return t_ns - (t_ns + wall_offset_ns) % (tier_seconds * SECOND_NS)


@dataclass(frozen=True, slots=True)
class Grid:
    """The seconds from the newest time seen before a stretch up to its last record."""

    starts: Ints  # engine ns, ascending
    index: Ints  # which second each record lies in
    t_ns: Ints  # of each record
    before_ns: int  # the newest time seen before
    last_of: Ints  # the last record at the end of each second; -1: none yet

    def __len__(self) -> int:
        return len(self.starts)

    @classmethod
    def over(cls, t_ns: Ints, *, before_ns: int, wall_offset_ns: int) -> "Grid":
        """Lay seconds over records in order of time, none older than `before_ns`."""
        phase = (before_ns + wall_offset_ns) % SECOND_NS
        seconds = (t_ns - (before_ns - phase)) // SECOND_NS
        present = np.concatenate([[0], seconds])
        present = present[heads_of(present)]
        jumps = np.diff(present)
        if (jumps > 1).any():
            present = np.concatenate([present[:1], *map(_filled, present[1:], jumps)])
        starts = before_ns - phase + present * SECOND_NS
        last_of = np.searchsorted(t_ns, np.append(starts[1:], t_ns[-1] + 1), "left") - 1
        return cls(starts, np.searchsorted(present, seconds), t_ns, before_ns, last_of)

    def ends(self) -> Ints:
        """Return where each second ends; the last one ends at the last record."""
        return np.append(self.starts[1:], self.t_ns[-1])

    def index_at(self, t_ns: Ints) -> Ints:
        """Return which second each time lies in; earlier ones count to the first."""
        return np.maximum(np.searchsorted(self.starts, t_ns, "right") - 1, 0)

    def at_ends(self, after: Ints, before: int) -> Ints:
        """Return a step function's value at the end of each second.

        Args:
            after: Its value after each record.
            before: Its value before the first.
        """
        return np.where(self.last_of >= 0, after[self.last_of], before)

    def integrals(self, after: Ints, before: int) -> Ints:
        """Return the integral (value x ns) of a step function over each second."""
        values = np.concatenate([[before], after])
        times = np.concatenate([[self.before_ns], self.t_ns])
        whole = np.zeros(len(times), np.int64)
        np.cumsum(values[:-1] * (times[1:] - times[:-1]), out=whole[1:])
        ends = self.ends()
        at = np.searchsorted(times, ends, "right") - 1
        at_ends = whole[at] + values[at] * (ends - times[at])
        return differences(at_ends, before=0)

    def extremes(self, after: Ints, before: int) -> tuple[Ints, Ints]:
        """Return a step function's least and greatest value in each second."""
        values = np.concatenate([[before], after, [0]])
        edges = np.empty(2 * len(self), np.int64)
        edges[0::2] = np.append(-1, self.last_of[:-1]) + 1
        edges[1::2] = self.last_of + 2
        least = np.minimum.reduceat(values, edges)[0::2]
        return least, np.maximum.reduceat(values, edges)[0::2]

    def sums(self, where: Ints, amounts: npt.NDArray[Any]) -> Ints:
        """Return the sum of amounts in each second, by index of the second."""
        return np.bincount(where, weights=amounts, minlength=len(self)).astype(np.int64)


def _filled(second: int, jump: int) -> Ints:
    return np.arange(second - min(jump, MAX_FILL) + 1, second + 1)
