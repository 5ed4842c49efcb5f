"""Means over a window's requests, and how much of a change in them may be luck.

A window is cut into 20 equal blocks of arrival time, so long that a queue forgets within one.
Blocks are drawn with replacement, for each recording's times by themselves; every replay at those
times gets the same draw, so that what replays have in common cancels.
"""

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from engine.explain.replay import FirstTokenTimes

NUM_BLOCKS: Final = 20
NUM_DRAWS: Final = 400
STUDENT_T: Final = 2.861  # 99 %, two-sided, 19 degrees of freedom
BEGINS_AT: Final = 0.10  # before it the engine fills: a replay begins empty
ENDS_AT: Final = 0.95  # requests after it may not have had their first token in the window
NS: Final = 1e-9
SEED: Final = 20_261_201
Floats = npt.NDArray[np.float64]


class BlockSums(NamedTuple):
    """Sums by block of arrival time, [NUM_BLOCKS] each; seconds, and requests."""

    seconds: Floats
    num: Floats

    @property
    def mean(self) -> float | None:
        """The mean TTFT of all blocks; None where nobody had a first token."""
        num = float(self.num.sum())
        return float(self.seconds.sum()) / num if num else None


def block_sums(times: FirstTokenTimes, window_ns: int) -> BlockSums:
    """Sum the measured part of a window by block."""
    place = (times.arrived_ns / window_ns - BEGINS_AT) / (ENDS_AT - BEGINS_AT) * NUM_BLOCKS
    inside = (place >= 0) & (place < NUM_BLOCKS)
    block = place[inside].astype(np.int64)
    seconds = np.bincount(block, times.ttft_ns[inside] * NS, minlength=NUM_BLOCKS)
    num = np.bincount(block, minlength=NUM_BLOCKS)
    return BlockSums(seconds.astype(np.float64), num.astype(np.float64))


def drawn_means(sums: list[BlockSums], is_second: list[bool]) -> Floats:
    """Return the mean of each replay in each draw, [NUM_DRAWS, num_replays].

    Args:
        is_second: Whether a replay's arrivals are those of the second recording.
    """
    source = np.random.default_rng(SEED)
    even = np.full(NUM_BLOCKS, 1 / NUM_BLOCKS)
    weights = [source.multinomial(NUM_BLOCKS, even, NUM_DRAWS).astype(float) for _ in range(2)]
    means = [
        (weights[second] @ one.seconds) / np.maximum(weights[second] @ one.num, 1)
        for one, second in zip(sums, is_second, strict=True)
    ]
    return np.stack(means, axis=1)
