"""Rows of a stretch sorted by block, so that each row's predecessor is its neighbour."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from agent.ledger.event_columns import Floats, Ints, Rows
from agent.ledger.runs import heads_of, tails_of


class ByBlock(NamedTuple):
    """Rows sorted by block, those of one block in event order: a run from each head to its tail."""

    order: Ints  # event position of each sorted row
    block: npt.NDArray[np.int32]
    record: Ints
    heads: Ints
    tails: Ints
    touched: npt.NDArray[np.int32]  # the block of each run

    def before(self, after: Floats, carried: npt.NDArray[Any]) -> Floats:
        """Return a value before each row: what the block's last row left, or what was carried."""
        before = np.empty_like(after)
        before[1:] = after[:-1]
        before[self.heads] = carried[self.touched]
        return before

    def latest(self, record: Ints, num_blocks: int) -> Ints:
        """Return, for each block, the greatest of a number that its records have; -1: no row."""
        latest = np.full(num_blocks, -1, np.int64)
        if len(self.heads):
            latest[self.touched] = np.maximum.reduceat(record.take(self.record), self.heads)
        return latest


def sorted_by_block(rows: Rows, num_blocks: int) -> ByBlock:
    small = num_blocks <= 1 << 16
    order = np.argsort(rows.block.astype(np.uint16 if small else np.uint32), kind="stable")
    block = rows.block.take(order)
    heads, tails = runs_of(block)
    return ByBlock(order, block, rows.record.take(order), heads, tails, block[heads])


def sums_by_record(record: Ints, amounts: Floats, size: int) -> Floats:
    """Return what the rows of each record add up to."""
    return np.asarray(np.bincount(record, weights=amounts, minlength=size), np.float64)


def runs_of(sorted_keys: npt.NDArray[Any]) -> tuple[Ints, Ints]:
    """Return the first and last index of each run of equal keys."""
    heads = heads_of(sorted_keys)
    return heads, tails_of(heads, len(sorted_keys))
