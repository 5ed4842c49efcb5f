"""Whole blocks moved between tensors: copied on the device, swapped to the host and back.

Every tensor of a paged cache has blocks as its first dimension. Here each is seen as one row of
machine words per block, so that a move keeps every bit, whatever the numbers mean.
"""

from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from engine.model.kernel_block_memory import KernelBlockMemory

WORD_TYPES = (torch.int64, torch.int32, torch.int16, torch.uint8)

Pairs = Sequence[tuple[int, int]]


class BlockMemory:
    """The tensors of one cache, and as many host blocks as it may be swapped out to."""

    def __init__(self, tensors: Sequence[Tensor], *, num_host_blocks: int = 0) -> None:
        """Take the cache's tensors, and allocate the host's (pinned beside a GPU).

        Args:
            tensors: [num_blocks, …] each, contiguous, all on one device.
            num_host_blocks: Blocks of the host tier; 0 for none.
        """
        self._rows = [_word_rows(tensor) for tensor in tensors]
        self._host_rows = [
            torch.zeros((num_host_blocks, rows.shape[1]), dtype=rows.dtype, pin_memory=rows.is_cuda)
            for rows in self._rows
        ]
        self.num_host_blocks = num_host_blocks

    @property
    def num_bytes(self) -> int:
        """Bytes of the device's tensors."""
        return sum(rows.nbytes for rows in self._rows)

    @property
    def num_host_bytes(self) -> int:
        """Bytes of the host's tensors."""
        return sum(rows.nbytes for rows in self._host_rows)

    def copy(self, pairs: Pairs) -> None:
        """Copy blocks [source, target] within the device, as if all at once."""
        if pairs:
            _move(self._rows, self._rows, pairs)

    def swap_out(self, pairs: Pairs) -> None:
        """Copy blocks [device source, host target]; bit-equal, done when this returns."""
        if pairs:
            _move(self._rows, self._host_rows, pairs)

    def swap_in(self, pairs: Pairs) -> None:
        """Copy blocks [host source, device target]; bit-equal."""
        if pairs:
            _move(self._host_rows, self._rows, pairs)


def block_memory(
    tensors: Sequence[Tensor], *, num_host_blocks: int = 0
) -> "BlockMemory | KernelBlockMemory":
    """Return what moves the blocks of these tensors: kernels beside a GPU, torch elsewhere."""
    if not tensors[0].is_cuda or find_spec("triton") is None:
        return BlockMemory(tensors, num_host_blocks=num_host_blocks)
    from engine.model.kernel_block_memory import KernelBlockMemory

    return KernelBlockMemory(tensors, num_host_blocks=num_host_blocks)


def _word_rows(tensor: Tensor) -> Tensor:
    """Return the same memory as [num_blocks, words per block] of the widest word that fits."""
    row_bytes = tensor[0].nbytes
    word = next(word for word in WORD_TYPES if row_bytes % word.itemsize == 0)
    return tensor.view(len(tensor), -1).view(torch.uint8).view(word)


def _move(source_rows: list[Tensor], target_rows: list[Tensor], pairs: Pairs) -> None:
    sources = torch.tensor([source for source, _ in pairs], device=source_rows[0].device)
    targets = torch.tensor([target for _, target in pairs], device=target_rows[0].device)
    for source, target in zip(source_rows, target_rows, strict=True):
        # Gathered before anything is written, so that a target may be another pair's source.
        moved = source.index_select(0, sources).to(target.device)
        target.index_copy_(0, targets, moved)
