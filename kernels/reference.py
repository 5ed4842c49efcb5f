"""What each attention kernel computes, in plain torch, one sequence at a time: slow and short.

Source: Kwon et al. 2023 (arXiv:2309.06180), section 4; grouped queries as in Ainslie et al. 2023
(arXiv:2305.13245); a sliding window as in Jiang et al. 2023 (arXiv:2310.06825), section 2: a token
sees itself and the window - 1 tokens before it.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from kernels.errors import ShapeError
from kernels.reference_store import dequantise
from kernels.shapes import (
    require_cache_pair,
    require_floats,
    require_integers,
    require_shape,
    require_window,
)


class Context(NamedTuple):
    """A sequence's keys and values in fp32, [length, num_kv_heads, head_dim] each."""

    keys: Tensor
    values: Tensor


def paged_decode(
    *,
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    block_tables: Tensor,
    context_lens: Tensor,
    key_scales: Tensor | None = None,
    value_scales: Tensor | None = None,
    window: int | None = None,
    scale: float | None = None,
) -> Tensor:
    """Attend from one new token per sequence over the sequence's blocks.

    Args:
        query: [num_seqs, num_heads, head_dim], fp32, fp16 or bf16.
        key_cache: [num_blocks, block_size, num_kv_heads, head_dim], the new tokens' keys included.
        value_cache: Same shape and dtype as `key_cache`.
        block_tables: [num_seqs, max_blocks] int32 or int64; entries past the context, or wholly
            behind the window, are not read.
        context_lens: [num_seqs], tokens to attend to, the new one included; 0 gives zeros.
        key_scales: [num_blocks, block_size, num_kv_heads] fp32, for an int8 cache only.
        value_scales: Same as `key_scales`.
        window: Tokens that are seen, the new one included; None for all.
        scale: Factor on the scores; head_dim ** -0.5 by default.

    Returns:
        Same shape and dtype as `query`; sums are taken in fp32.

    Raises:
        ShapeError: A shape or dtype differs from the above.
    """
    return paged_prefill(
        query=query,
        key_cache=key_cache,
        value_cache=value_cache,
        block_tables=block_tables,
        query_starts=torch.arange(len(context_lens) + 1),
        context_lens=context_lens,
        key_scales=key_scales,
        value_scales=value_scales,
        window=window,
        scale=scale,
    )


def check_decode(
    query: Tensor,
    key_cache: Tensor,
    block_tables: Tensor,
    context_lens: Tensor,
    window: int | None,
) -> None:
    """Raise ShapeError unless queries, tables and lengths fit the cache."""
    require_floats("query", query, key_cache)
    require_window(window)
    num_kv_heads, head_dim = key_cache.shape[2:]
    if query.dim() != 3 or query.shape[2] != head_dim or query.shape[1] % num_kv_heads:
        raise ShapeError(
            f"query is {list(query.shape)}; expected [num_seqs, a multiple of {num_kv_heads}, "
            f"{head_dim}]"
        )
    if block_tables.dim() != 2:
        raise ShapeError(f"block_tables has {block_tables.dim()} dimensions; expected 2")
    require_shape("block_tables", block_tables, (len(context_lens), block_tables.shape[1]))
    require_integers("block_tables", block_tables, key_cache)
    require_integers("context_lens", context_lens, key_cache)


def paged_prefill(
    *,
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    block_tables: Tensor,
    query_starts: Tensor,
    context_lens: Tensor,
    key_scales: Tensor | None = None,
    value_scales: Tensor | None = None,
    window: int | None = None,
    scale: float | None = None,
) -> Tensor:
    """Attend causally from a chunk of new tokens per sequence over its blocks.

    Args:
        query: [num_tokens, num_heads, head_dim], the chunks one after the other.
        key_cache: [num_blocks, block_size, num_kv_heads, head_dim], the chunks' keys included.
        value_cache: Same shape and dtype as `key_cache`.
        block_tables: [num_seqs, max_blocks] int32 or int64, as for `paged_decode`.
        query_starts: [num_seqs + 1]; chunk i is rows [query_starts[i], query_starts[i + 1]).
        context_lens: [num_seqs], tokens of each sequence up to the end of its chunk; of an empty
            context the one row of a decode is zeros.
        key_scales: [num_blocks, block_size, num_kv_heads] fp32, for an int8 cache only.
        value_scales: Same as `key_scales`.
        window: Tokens that each token sees, itself included; None for all before it.
        scale: Factor on the scores; head_dim ** -0.5 by default.

    Returns:
        Same shape and dtype as `query`; sums are taken in fp32.

    Raises:
        ShapeError: A shape or dtype differs from the above.
    """
    require_cache_pair(key_cache, value_cache, key_scales, value_scales)
    check_decode(query, key_cache, block_tables, context_lens, window)
    require_shape("query_starts", query_starts, (len(context_lens) + 1,))
    starts = query_starts.tolist()
    if starts[0] != 0 or starts[-1] != len(query) or starts != sorted(starts):
        raise ShapeError(f"query_starts is {starts}; expected a rise from 0 to {len(query)}")
    out = torch.zeros_like(query)
    for row, length in enumerate(context_lens.tolist()):
        chunk = slice(starts[row], starts[row + 1])
        num_before = length - (chunk.stop - chunk.start)
        if not length:
            continue
        if num_before < 0:
            raise ShapeError(f"sequence {row} has a context of {length}, less than its chunk")
        context = Context(
            gather_context(key_cache, key_scales, block_tables[row], length),
            gather_context(value_cache, value_scales, block_tables[row], length),
        )
        hidden = _hidden(len(query[chunk]), num_before, length, window).to(query.device)
        out[chunk] = _attend(query[chunk], context, hidden, scale)
    return out


def gather_context(
    cache: Tensor, scales: Tensor | None, block_table: Tensor, length: int
) -> Tensor:
    """Return the first `length` vectors of a table, [length, num_kv_heads, head_dim] fp32.

    A block that has been given back (-1) is read as block 0: what it holds is hidden anyway.
    """
    num_blocks = -(-length // cache.shape[1])
    if num_blocks > len(block_table):
        raise ShapeError(f"a context of {length} needs {num_blocks} blocks, not {len(block_table)}")
    blocks = block_table[:num_blocks].long().clamp(min=0)
    codes = cache[blocks] if cache.dtype.itemsize > 1 else _bytes_of(cache, blocks)
    vectors = dequantise(codes, None if scales is None else scales[blocks])
    return vectors.flatten(0, 1)[:length]


def _bytes_of(cache: Tensor, blocks: Tensor) -> Tensor:
    # Torch indexes bytes, not fp8, on some devices.
    return cache.view(torch.uint8)[blocks].view(cache.dtype)


def _hidden(num_queries: int, num_before: int, length: int, window: int | None) -> Tensor:
    """[num_queries, length] bool: what each query must not see."""
    query_positions = num_before + torch.arange(num_queries)[:, None]
    positions = torch.arange(length)
    hidden = positions > query_positions
    return hidden if window is None else hidden | (positions <= query_positions - window)


def _attend(query: Tensor, context: Context, hidden: Tensor, scale: float | None) -> Tensor:
    num_shared = query.shape[1] // context.keys.shape[1]
    keys, values = (one.repeat_interleave(num_shared, dim=1) for one in context)
    scores = torch.einsum("qhd,khd->hqk", query.float(), keys)
    scores *= query.shape[2] ** -0.5 if scale is None else scale
    weights = scores.masked_fill(hidden, float("-inf")).softmax(dim=-1)
    return torch.einsum("hqk,khd->qhd", weights, values).to(query.dtype)
