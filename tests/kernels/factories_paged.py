"""Paged caches filled with seeded noise, and block tables that scatter contexts over them."""

from dataclasses import dataclass

import torch
from hypothesis import strategies as st
from torch import Tensor

from kernels import reference, reference_store

torch.set_num_threads(1)

TOLERANCE = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1e-2}
CACHE_TYPES = [
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.int8,
    *([torch.float8_e4m3fn] if hasattr(torch, "float8_e4m3fn") else []),
]


@dataclass(frozen=True, slots=True)
class PagedCase:
    """Arguments of an attention call over a paged cache."""

    query: Tensor
    key_cache: Tensor
    value_cache: Tensor
    block_tables: Tensor
    context_lens: Tensor
    key_scales: Tensor | None
    value_scales: Tensor | None

    def arguments(self) -> dict[str, Tensor | None]:
        return {name: getattr(self, name) for name in self.__slots__}

    def on(self, device: str) -> "PagedCase":
        """The same case on another device."""
        return PagedCase(
            *(one if one is None else one.to(device) for one in self.arguments().values())
        )


def paged_case(
    *,
    context_lens: list[int],
    num_queries: int | None = None,
    block_size: int = 16,
    num_heads: int = 9,
    num_kv_heads: int = 3,
    head_dim: int = 64,
    dtype: torch.dtype = torch.float32,
    cache_dtype: torch.dtype | None = None,
    seed: int = 0,
) -> PagedCase:
    """Scatter the contexts over a cache; unused table entries are -1, unused slots are huge."""
    generator = torch.Generator().manual_seed(seed)
    blocks_of = [-(-length // block_size) for length in context_lens]
    num_blocks = sum(blocks_of) + 2
    tables = torch.full((len(context_lens), max(*blocks_of, 1)), -1, dtype=torch.int32)
    order = torch.randperm(num_blocks, generator=generator).tolist()
    slots: list[int] = []
    for row, length in enumerate(context_lens):
        taken = [order.pop() for _ in range(blocks_of[row])]
        tables[row, : len(taken)] = torch.tensor(taken, dtype=torch.int32)
        slots += [taken[at // block_size] * block_size + at % block_size for at in range(length)]
    caches = empty_caches(
        num_blocks, block_size, num_kv_heads, head_dim, dtype=cache_dtype or dtype, fill=100.0
    )
    key, value = torch.randn(2, len(slots), num_kv_heads, head_dim, generator=generator).to(dtype)
    reference_store.store_kv(
        key=key, value=value, slots=torch.tensor(slots, dtype=torch.int64), **caches
    )
    rows = len(context_lens) if num_queries is None else num_queries
    query = torch.randn(rows, num_heads, head_dim, generator=generator).to(dtype)
    return PagedCase(
        query=query, block_tables=tables, context_lens=torch.tensor(context_lens), **caches
    )


def empty_caches(
    num_blocks: int = 6,
    block_size: int = 8,
    num_kv_heads: int = 3,
    head_dim: int = 64,
    *,
    dtype: torch.dtype = torch.float32,
    fill: float = 0.0,
) -> dict[str, Tensor | None]:
    """Return a cache's four tensors by the names that the launchers give them."""
    shape = (num_blocks, block_size, num_kv_heads, head_dim)
    scales = {"key_scales": None, "value_scales": None}
    if dtype == torch.int8:
        scales = {name: torch.full(shape[:3], fill) for name in scales}
        fill = 127.0 if fill else 0.0
    caches = {name: torch.full(shape, fill).to(dtype) for name in ("key_cache", "value_cache")}
    return caches | scales


def exact(case: PagedCase, **settings: object) -> Tensor:
    """What an fp32 query gives: the same numbers without the rounding of the query's type."""
    return reference.paged_decode(**(case.arguments() | {"query": case.query.float()}), **settings)


def worst_difference(got: Tensor, expected: Tensor) -> float:
    """Return the largest absolute difference, NaN where a NaN is."""
    return float((got.double().cpu() - expected.double().cpu()).abs().max())


@st.composite
def shapes(draw: st.DrawFn) -> dict[str, object]:
    """Head counts, widths, block sizes and types of a small attention call."""
    num_kv_heads = draw(st.integers(1, 2))
    return {
        "num_kv_heads": num_kv_heads,
        "num_heads": num_kv_heads * draw(st.sampled_from([1, 2, 3, 4, 7])),
        "head_dim": draw(st.sampled_from([16, 24, 64])),
        "block_size": draw(st.sampled_from([1, 4, 16, 32])),
        "dtype": draw(st.sampled_from(list(TOLERANCE))),
        "cache_dtype": draw(st.sampled_from([None, *CACHE_TYPES])),
        "seed": draw(st.integers(0, 1 << 16)),
    }
