"""What a step's work should cost, learned from the engine's own past; pure.

Compute time of an interval is taken as a sum over its steps, its prefill tokens, its decode tokens
and the tokens of context that its steps read, each with a price of 0 or more (as the linear models
of Agrawal et al. 2024, arXiv:2405.05465). So a larger batch or a longer context is not slowness.

The past may hold a slow stretch itself. Intervals well above the fit are therefore left out and the
fit made again: it settles on what the engine was able to do.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

LEAST_INTERVALS: Final = 12
LEFT_OUT_ABOVE: Final = 1.25  # of what the fit says
MOST_ROUNDS: Final = 8


@dataclass(frozen=True, slots=True)
class StepWork:
    """Intervals in which steps were made; all arrays have one value for each.

    Attributes:
        compute_seconds: [n], spent in the steps.
        work: [n, 4]: steps, prefill tokens, decode tokens, steps x tokens of context.
    """

    compute_seconds: Floats
    work: Floats

    def __len__(self) -> int:
        return len(self.compute_seconds)


def step_work(values: Mapping[str, Floats], block_size: int) -> StepWork:
    """Return the intervals in which something was computed and all is known.

    Context is what the engine counted of filled slots, else the slots of the blocks in tables.

    Args:
        values: [n] each, of the columns `steps`, `prefill_tokens`, `decode_tokens`,
            `filled_slots`, `logical_blocks` and `compute_ns` of `agent.rollups.scalars`.
    """
    counted, tables = values["filled_slots"], values["logical_blocks"] * block_size
    context = np.nan_to_num(np.where(np.isnan(counted), tables, counted))
    steps, compute_ns = values["steps"], values["compute_ns"]
    work = np.column_stack(
        [steps, values["prefill_tokens"], values["decode_tokens"], steps * context]
    )
    told = (steps > 0) & (compute_ns > 0) & np.isfinite(work).all(axis=1)
    return StepWork(compute_ns[told] / 1e9, work[told])


def expected_seconds(past: StepWork, now: StepWork) -> float | None:
    """Return the compute time that the past predicts for what was done now.

    None where the past has too few intervals to learn from, or nothing was done now.
    """
    if len(past) < LEAST_INTERVALS or not len(now):
        return None
    kept = np.ones(len(past), bool)
    prices = np.zeros(past.work.shape[1])
    for _ in range(MOST_ROUNDS):
        prices = _prices(past.work[kept], past.compute_seconds[kept])
        fits = past.compute_seconds <= LEFT_OUT_ABOVE * (past.work @ prices)
        if fits.sum() < max(LEAST_INTERVALS, len(past) // 8) or (fits == kept).all():
            break
        kept = fits
    expected = float((now.work @ prices).sum())
    return expected if expected > 0 else None


def _prices(work: Floats, seconds: Floats) -> Floats:
    """Return the prices, none below 0, of least relative error.

    Columns with a negative price are left out one after the other, the most negative first. With
    four columns that is as good as an exact solver.
    """
    weight = 1 / seconds
    scale = np.maximum((work * weight[:, None]).max(axis=0), 1e-30)
    scaled = work * weight[:, None] / scale
    columns = list(range(work.shape[1]))
    while columns:
        found = np.linalg.lstsq(scaled[:, columns], np.ones(len(seconds)), rcond=1e-8)[0]
        if (found >= 0).all():
            prices = np.zeros(work.shape[1])
            prices[columns] = found
            return np.asarray(prices / scale, np.float64)
        columns.pop(int(np.argmin(found)))
    return np.zeros(work.shape[1])
