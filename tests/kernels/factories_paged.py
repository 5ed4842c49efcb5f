"""Paged caches filled with seeded noise, and block tables that scatter contexts over them."""

from dataclasses import dataclass

import torch
from torch import Tensor

TOLERANCE = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1e-2}


@dataclass(frozen=True, slots=True)
class PagedCase:
    """Arguments of an attention call over a paged cache."""

    query: Tensor
    key_cache: Tensor
    value_cache: Tensor
    block_tables: Tensor
    context_lens: Tensor

    def arguments(self) -> dict[str, Tensor]:
        return {name: getattr(self, name) for name in self.__slots__}


def paged_case(
    *,
    context_lens: list[int],
    num_queries: int | None = None,
    block_size: int = 16,
    num_heads: int = 9,
    num_kv_heads: int = 3,
    head_dim: int = 64,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
) -> PagedCase:
    """Scatter the contexts over a cache; unused table entries are -1, unused slots are huge."""
    generator = torch.Generator().manual_seed(seed)
    blocks_of = [-(-length // block_size) for length in context_lens]
    num_blocks = sum(blocks_of) + 2
    cache_shape = (num_blocks, block_size, num_kv_heads, head_dim)
    key_cache = torch.full(cache_shape, 1e4, dtype=dtype)
    value_cache = torch.full(cache_shape, 1e4, dtype=dtype)
    tables = torch.full((len(context_lens), max(max(blocks_of), 1)), -1, dtype=torch.int32)
    order = torch.randperm(num_blocks, generator=generator).tolist()
    for row, length in enumerate(context_lens):
        taken = [order.pop() for _ in range(blocks_of[row])]
        tables[row, : len(taken)] = torch.tensor(taken, dtype=torch.int32)
        for position in range(length):
            slot = (taken[position // block_size], position % block_size)
            key_cache[slot] = torch.randn(num_kv_heads, head_dim, generator=generator).to(dtype)
            value_cache[slot] = torch.randn(num_kv_heads, head_dim, generator=generator).to(dtype)
    rows = len(context_lens) if num_queries is None else num_queries
    query = torch.randn(rows, num_heads, head_dim, generator=generator).to(dtype)
    return PagedCase(query, key_cache, value_cache, tables, torch.tensor(context_lens))


def worst_difference(got: Tensor, expected: Tensor) -> float:
    """Return the largest absolute difference, NaN where a NaN is."""
    return float((got.double() - expected.double()).abs().max())
