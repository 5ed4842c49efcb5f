"""Many caches seen as one: the addresses of all layers' keys, values and scales in one tensor.

A block is `words_per_block` whole machine words of each cache, whatever numbers they hold, so that
one launch moves a block of every layer and keeps every bit.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kernels.errors import ShapeError

# Widest first: 16 bytes a lane is two words of eight.
WORD_TYPES = (torch.int64, torch.int32, torch.int16, torch.int8)


@dataclass(frozen=True, slots=True)
class CacheRows:
    """Caches with equally large blocks.

    Attributes:
        addresses: [num_caches] int64 on the device.
        word: Type that a block is moved as.
        words_per_block: Words of a block in each cache.
        num_blocks: Blocks of each cache.
        caches: The tensors, so that the addresses stay theirs.
    """

    addresses: Tensor
    word: torch.dtype
    words_per_block: int
    num_blocks: int
    caches: tuple[Tensor, ...]

    @property
    def words_of_all(self) -> int:
        """Words of a block over all caches."""
        return len(self.caches) * self.words_per_block

    @property
    def bytes_of_all(self) -> int:
        """Bytes of a block over all caches."""
        return self.words_of_all * self.word.itemsize


def cache_rows(caches: Sequence[Tensor]) -> list[CacheRows]:
    """Group caches by the size of their blocks, in the order in which sizes first occur.

    Args:
        caches: [num_blocks, …] each, contiguous, all on one device and with as many blocks.

    Raises:
        ShapeError: A cache differs from the above.
    """
    if not caches:
        raise ShapeError("no caches were given; expected at least one")
    groups: dict[int, list[Tensor]] = {}
    for cache in caches:
        if not cache.is_contiguous() or cache.device != caches[0].device:
            raise ShapeError(
                f"a cache on {cache.device} with strides {cache.stride()}; expected a contiguous "
                f"one on {caches[0].device}"
            )
        if len(cache) != len(caches[0]):
            raise ShapeError(f"a cache has {len(cache)} blocks, another {len(caches[0])}")
        groups.setdefault(cache[:1].nbytes, []).append(cache)
    return [_rows(size, group) for size, group in groups.items()]


def _rows(block_bytes: int, caches: list[Tensor]) -> CacheRows:
    word = next(word for word in WORD_TYPES if block_bytes % word.itemsize == 0)
    addresses = torch.tensor([cache.data_ptr() for cache in caches], device=caches[0].device)
    return CacheRows(addresses, word, block_bytes // word.itemsize, len(caches[0]), tuple(caches))


def block_numbers(block_ids: Sequence[int], rows: CacheRows) -> Tensor:
    """Return ids as an int64 tensor on the device.

    Raises:
        ShapeError: There is no such block.
    """
    for block_id in block_ids:
        if not 0 <= block_id < rows.num_blocks:
            raise ShapeError(f"block {block_id} is not one of 0..{rows.num_blocks - 1}")
    numbers = torch.tensor(block_ids, dtype=torch.int64)
    return numbers.to(rows.addresses.device, non_blocking=True)
