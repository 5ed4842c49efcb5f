"""Whole blocks moved by this repository's own kernels: one launch for all layers, beside a GPU.

The host keeps a block of all layers in one piece, so that it crosses the bus in one copy.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from engine.model.block_memory import Pairs
from kernels.block_copy import copy_blocks, has_overlap
from kernels.cache_rows import cache_rows
from kernels.swap import gather_blocks, scatter_blocks, staging_for


class KernelBlockMemory:
    """What `BlockMemory` does, by kernels."""

    def __init__(self, tensors: Sequence[Tensor], *, num_host_blocks: int = 0) -> None:
        """Take the cache's tensors, and allocate the host's (pinned beside a GPU).

        Args:
            tensors: [num_blocks, …] each, contiguous, all on one device.
            num_host_blocks: Blocks of the host tier; 0 for none.
        """
        self._groups = cache_rows(tensors)
        self._host = [
            torch.zeros(
                (num_host_blocks, rows.words_of_all),
                dtype=rows.word,
                pin_memory=rows.addresses.is_cuda,
            )
            for rows in self._groups
        ]
        self.num_host_blocks = num_host_blocks
        self._device = tensors[0].device

    @property
    def num_bytes(self) -> int:
        """Bytes of the device's tensors."""
        return sum(cache.nbytes for rows in self._groups for cache in rows.caches)

    @property
    def num_host_bytes(self) -> int:
        """Bytes of the host's tensors."""
        return sum(rows.nbytes for rows in self._host)

    def copy(self, pairs: Pairs) -> None:
        """Copy blocks [source, target] within the device, as if all at once."""
        if not has_overlap(pairs):
            copy_blocks(self._groups, pairs)
            return
        # A target is another pair's source: read all before anything is written.
        staging = staging_for(self._groups, len(pairs))
        gather_blocks(self._groups, [source for source, _ in pairs], staging)
        scatter_blocks(self._groups, [target for _, target in pairs], staging)

    def swap_out(self, pairs: Pairs) -> None:
        """Copy blocks [device source, host target]; bit-equal, done when this returns."""
        staging = staging_for(self._groups, len(pairs))
        gather_blocks(self._groups, [source for source, _ in pairs], staging)
        for host, rows in zip(self._host, staging, strict=True):
            for index, (_, target) in enumerate(pairs):
                host[target].copy_(rows[index], non_blocking=True)
        if self._device.type == "cuda":
            torch.cuda.current_stream(self._device).synchronize()

    def swap_in(self, pairs: Pairs) -> None:
        """Copy blocks [host source, device target]; bit-equal."""
        staging = staging_for(self._groups, len(pairs))
        for host, rows in zip(self._host, staging, strict=True):
            for index, (source, _) in enumerate(pairs):
                rows[index].copy_(host[source], non_blocking=True)
        scatter_blocks(self._groups, [target for _, target in pairs], staging)
