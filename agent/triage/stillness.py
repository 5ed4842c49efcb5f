"""For how long nothing has moved; pure, over rows of one second."""

from typing import Final

import numpy as np
import numpy.typing as npt

from agent.reads.models import Float64Array, Int64Array

NS: Final = 1_000_000_000


def seconds_stuck(
    t_ns: Int64Array, *, waiting: Float64Array, let_in: Float64Array, known_from_ns: int
) -> float:
    """Return for how long somebody has waited, and nobody was let in, up to the last row.

    Args:
        t_ns: [n], start of each row's second.
        waiting: [n], how many waited at its end; NaN is not known, and breaks the stretch.
        let_in: [n], how many were admitted or resumed in it.
        known_from_ns: Rows that begin before it do not count: a gap hides who was let in.
    """
    still = (np.nan_to_num(waiting) > 0) & (let_in == 0) & (t_ns >= known_from_ns)
    return _length(t_ns, still, int(t_ns[-1]) + NS)


def seconds_without_step(
    t_ns: Int64Array,
    *,
    steps: Float64Array,
    live: Float64Array,
    known_from_ns: int,
    end_ns: int,
) -> float:
    """Return for how long no step was made although sequences were live, up to `end_ns`."""
    still = (np.nan_to_num(live) > 0) & (steps == 0) & (t_ns >= known_from_ns)
    return _length(t_ns, still, end_ns)


def _length(t_ns: Int64Array, still: npt.NDArray[np.bool_], end_ns: int) -> float:
    if not len(still) or not still[-1]:
        return 0.0
    moved = np.flatnonzero(~still)
    first = int(moved[-1]) + 1 if len(moved) else 0
    return max(0.0, (end_ns - int(t_ns[first])) / NS)
