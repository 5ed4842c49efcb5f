"""What block copy and swap compute, in plain torch; blocks are a cache's first dimension."""

from collections.abc import Sequence

import torch
from torch import Tensor


def copy_blocks(caches: Sequence[Tensor], pairs: Sequence[tuple[int, int]]) -> None:
    """Copy whole blocks [source, target] of every cache, all read before any is written."""
    for cache in caches:
        rows = _bytes(cache)
        rows[[target for _, target in pairs]] = rows[[source for source, _ in pairs]]


def gather_blocks(caches: Sequence[Tensor], block_ids: Sequence[int]) -> Tensor:
    """Return [len(block_ids), bytes of a block over all caches] uint8, cache after cache."""
    return torch.cat([_bytes(cache)[list(block_ids)] for cache in caches], dim=1)


def scatter_blocks(caches: Sequence[Tensor], staging: Tensor, block_ids: Sequence[int]) -> None:
    """Write what `gather_blocks` gave into the blocks named; the caches change in place."""
    sizes = [_bytes(cache).shape[1] for cache in caches]
    for cache, part in zip(caches, torch.split(staging, sizes, dim=1), strict=True):
        _bytes(cache)[list(block_ids)] = part


def _bytes(cache: Tensor) -> Tensor:
    return cache.view(len(cache), -1).view(torch.uint8)
