"""How uncertain a figure of a window is: the circular block bootstrap.

Neighbouring intervals are alike, so whole blocks of them are drawn, each at least three times as
long as the series remembers. The sums of every possible block come from running sums; a draw is
then a row of weights, and all draws of all columns one matrix product.

Source: Politis and Romano, A circular block-resampling procedure for stationary data (1992).
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from agent.baselines.window_series import Floats

NUM_DRAWS: Final = 400  # the standard error is then known within 4 %
BLOCK_TAUS: Final = 3.0
FEWEST_BLOCKS: Final = 20


@dataclass(frozen=True, slots=True)
class Blocks:
    """How a side is cut: so many intervals a block, as many blocks as its counted ones fill."""

    length: int
    num_blocks: int

    @property
    def is_enough(self) -> bool:
        """Whether an error that they give can be believed."""
        return self.num_blocks >= FEWEST_BLOCKS


def choose_blocks(tau: float, num_counted: int) -> Blocks:
    """Return blocks of at least three autocorrelation times."""
    length = math.ceil(BLOCK_TAUS * tau)
    return Blocks(length, num_counted // length)


def resampled_sums(columns: Floats, blocks: Blocks, *, seed: int) -> Floats:
    """Return each column's sum over blocks drawn with replacement.

    Args:
        columns: [num_intervals, num_columns]; an interval that is not counted holds zeros.
        seed: The same one gives the same draws.

    Returns:
        [NUM_DRAWS, num_columns]; about as many intervals went into each draw as the window has.
    """
    num_intervals, length = len(columns), min(blocks.length, len(columns))
    running = np.concatenate([np.zeros((1, columns.shape[1])), columns, columns[: length - 1]])
    running = np.cumsum(running, axis=0)
    block_sums = running[length:] - running[:-length]  # [num_intervals, num_columns]
    per_draw = draws_per_side(num_intervals, length)
    starts = np.random.default_rng(seed).integers(num_intervals, size=(NUM_DRAWS, per_draw))
    weights = np.zeros((NUM_DRAWS, num_intervals))
    np.add.at(weights, (np.arange(NUM_DRAWS)[:, None], starts), 1.0)
    sums: Floats = weights @ block_sums
    return sums


def draws_per_side(num_intervals: int, length: int) -> int:
    """Return how many blocks make a draw of about the window's length."""
    return max(1, round(num_intervals / length))
