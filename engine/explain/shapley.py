"""Shares that add up: the Shapley value of each of a few groups.

A group's share is what swapping it changes, averaged over every order in which all groups can be
swapped. The shares sum to the whole change, whatever the groups do together.

Source: Shapley, A value for n-person games (1953).
"""

from math import factorial

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def shapley_matrix(num_groups: int) -> Floats:
    """Return the weights [2^num_groups, num_groups]: values of all choices times it are shares.

    Bit g of a choice says that group g is swapped.
    """
    weights = np.zeros((1 << num_groups, num_groups))
    for choice in range(1 << num_groups):
        for group in range(num_groups):
            others = (choice & ~(1 << group)).bit_count()
            weight = factorial(others) * factorial(num_groups - others - 1) / factorial(num_groups)
            weights[choice, group] = weight if choice >> group & 1 else -weight
    return weights
