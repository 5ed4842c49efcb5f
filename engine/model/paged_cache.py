"""What a paged cache does with whole blocks, whatever its slots hold: copy, swap, count bytes."""

from collections.abc import Sequence

import torch

from engine.model.block_memory import block_memory
from engine.model.kv_formats import KvFormat, format_of_dtype
from engine.model.paged_vectors import PagedVectors


class PagedCache:
    """Blocks of all layers, moved together.

    Attributes:
        dtype: Type of the numbers as they are kept.
        compute_dtype: Type that `store` takes and `gather` gives.
    """

    def __init__(self, *, dtype: torch.dtype, kv_format: KvFormat | None) -> None:
        """Choose how the cache is kept: by default in `dtype`, as the model computes."""
        self.compute_dtype = dtype
        self.format = kv_format or format_of_dtype(dtype)
        self.dtype = self.format.dtype

    def _hold(self, vectors: Sequence[PagedVectors], *, num_host_blocks: int) -> None:
        """Take on what is to be moved, and allocate the host's blocks."""
        tensors = [tensor for each in vectors for tensor in each.tensors]
        self._memory = block_memory(tensors, num_host_blocks=num_host_blocks)

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy whole blocks [source, target] in every layer, as if all at once."""
        self._memory.copy(pairs)

    def swap_out(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy whole blocks [device source, host target] in every layer, bit for bit."""
        self._memory.swap_out(pairs)

    def swap_in(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy whole blocks [host source, device target] in every layer, bit for bit."""
        self._memory.swap_in(pairs)

    @property
    def rounds(self) -> bool:
        """Whether what `gather` gives differs from what `store` was given."""
        return self.format.dtype != self.compute_dtype

    @property
    def num_host_blocks(self) -> int:
        """Blocks of the host tier."""
        return self._memory.num_host_blocks

    @property
    def num_bytes(self) -> int:
        """Bytes allocated on the device."""
        return self._memory.num_bytes

    @property
    def num_host_bytes(self) -> int:
        """Bytes allocated on the host for swapping."""
        return self._memory.num_host_bytes
