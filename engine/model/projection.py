"""A layer's matrix products, by the quickest way this machine has.

On a CPU in fp32 that is oneDNN's packed layout: with the few rows of a decode step it takes two
thirds of the time of the plain product, and it spreads over threads where the plain one does not.
"""

from typing import Protocol

import torch
from torch import Tensor

# The layout is chosen for about so many rows: those of a decode step.
PACKED_FOR_ROWS = 16


class Projection(Protocol):
    """Multiplies rows with one weight matrix."""

    def __call__(self, rows: Tensor) -> Tensor:
        """Return the product, [num_rows, out]."""

    def add_to(self, residual: Tensor, rows: Tensor) -> Tensor:
        """Return `residual` plus the product; `residual` may be written over."""


class PlainProjection:
    """One product of torch's own; `weight` is [in, out]."""

    def __init__(self, weight: Tensor) -> None:
        self._weight = weight

    def __call__(self, rows: Tensor) -> Tensor:
        """Return the product, [num_rows, out]."""
        return torch.mm(rows, self._weight)

    def add_to(self, residual: Tensor, rows: Tensor) -> Tensor:
        """Return `residual`, to which the product was added in place."""
        return residual.addmm_(rows, self._weight)


class PackedProjection:
    """A weight in oneDNN's own layout: a copy, after which the plain one can be let go."""

    def __init__(self, weight: Tensor) -> None:
        """Pack `weight`, [in, out] fp32 on the CPU."""
        self._weight = torch.ops.mkldnn._reorder_linear_weight(
            weight.t().contiguous(), PACKED_FOR_ROWS
        )

    def __call__(self, rows: Tensor) -> Tensor:
        """Return the product, [num_rows, out]."""
        product: Tensor = torch.ops.mkldnn._linear_pointwise(
            rows, self._weight, None, "none", [], ""
        )
        return product

    def add_to(self, residual: Tensor, rows: Tensor) -> Tensor:
        """Return `residual` plus the product, as a new tensor."""
        added: Tensor = torch.ops.mkldnn._linear_pointwise.binary(
            rows, residual, self._weight, None, "add"
        )
        return added


def projection(weight: Tensor) -> Projection:
    """Return the projection by `weight`, [in, out]."""
    return PackedProjection(weight) if can_pack(weight) else PlainProjection(weight)


def output_head(weight: Tensor) -> Projection:
    """Return the projection by the output matrix, [vocab_size, hidden_size] as it is stored.

    Tied to the embedding, it is not copied where it need not be packed.
    """
    return projection(weight.t())


def can_pack(weight: Tensor) -> bool:
    """Tell whether this machine has packed products for such a weight."""
    is_fp32_on_cpu = weight.device.type == "cpu" and weight.dtype == torch.float32
    return is_fp32_on_cpu and hasattr(torch.ops.mkldnn, "_linear_pointwise")
