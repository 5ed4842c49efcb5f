"""Neighbours in an array: what differs from the one before it, and runs of equal keys.

numpy's own `diff` and `append` cost several times what they do on the few thousand numbers of a
commit.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from agent.ledger.event_columns import Ints


def differences(values: Ints, *, before: int) -> Ints:
    """Return by how much each value differs from the one before it; `before` precedes the first."""
    steps = np.empty(len(values), np.int64)
    if len(values):
        np.subtract(values[1:], values[:-1], out=steps[1:])
        steps[0] = values[0] - before
    return steps


def heads_of(keys: npt.NDArray[Any]) -> Ints:
    """Return the first index of each run of equal keys."""
    is_head = np.ones(len(keys), bool)
    np.not_equal(keys[1:], keys[:-1], out=is_head[1:])
    return np.flatnonzero(is_head)


def tails_of(heads: Ints, size: int) -> Ints:
    """Return the last index of each run over `size` values that begins at a head."""
    tails = np.empty(len(heads), np.int64)
    np.subtract(heads[1:], 1, out=tails[:-1])
    tails[-1:] = size - 1
    return tails


def lengths_of(heads: Ints, size: int) -> Ints:
    """Return how long each run over `size` values is that begins at a head."""
    lengths = np.empty(len(heads), np.int64)
    np.subtract(heads[1:], heads[:-1], out=lengths[:-1])
    if len(heads):
        lengths[-1] = size - heads[-1]
    return lengths
