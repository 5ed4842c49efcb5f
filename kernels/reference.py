"""What each kernel computes, in plain torch, one sequence at a time: slow, short, on any device.

Source: Kwon et al. 2023 (arXiv:2309.06180), section 4; grouped queries as in Ainslie et al. 2023
(arXiv:2305.13245).
"""

import torch
from torch import Tensor

from kernels.errors import ShapeError
from kernels.shapes import require_cache_pair, require_integers, require_like, require_shape


def store_kv(
    *, key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slots: Tensor
) -> None:
    """Write each token's key and value into its slot of the paged cache.

    Args:
        key: [num_tokens, num_kv_heads, head_dim].
        value: Same shape and dtype as `key`.
        key_cache: [num_blocks, block_size, num_kv_heads, head_dim]; changed in place.
        value_cache: Same shape as `key_cache`; changed in place.
        slots: [num_tokens] int64; -1 marks padding and is skipped.

    Raises:
        ShapeError: A shape or dtype differs from the above.
    """
    check_store(key, value, key_cache, value_cache, slots)
    kept = slots >= 0
    block_size = key_cache.shape[1]
    blocks, offsets = slots[kept] // block_size, slots[kept] % block_size
    key_cache[blocks, offsets] = key[kept]
    value_cache[blocks, offsets] = value[kept]


def check_store(
    key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slots: Tensor
) -> None:
    """Raise ShapeError unless the arguments of `store_kv` fit each other."""
    require_cache_pair(key_cache, value_cache)
    require_shape("key", key, (len(key), *key_cache.shape[2:]))
    require_shape("value", value, tuple(key.shape))
    require_like("key", key, key_cache)
    require_like("value", value, key_cache)
    require_shape("slots", slots, (len(key),))
    require_integers("slots", slots, key_cache)


def paged_decode(
    *,
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    block_tables: Tensor,
    context_lens: Tensor,
    scale: float | None = None,
) -> Tensor:
    """Attend from one new token per sequence over the sequence's blocks.

    Args:
        query: [num_seqs, num_heads, head_dim].
        key_cache: [num_blocks, block_size, num_kv_heads, head_dim], the new tokens' keys included.
        value_cache: Same shape as `key_cache`.
        block_tables: [num_seqs, max_blocks] int32 or int64; entries past the context are not read.
        context_lens: [num_seqs], tokens to attend to, the new one included; 0 gives zeros.
        scale: Factor on the scores; head_dim ** -0.5 by default.

    Returns:
        Same shape and dtype as `query`; sums are taken in fp32.

    Raises:
        ShapeError: A shape or dtype differs from the above.
    """
    check_decode(query, key_cache, value_cache, block_tables, context_lens)
    out = torch.zeros_like(query)
    for row, length in enumerate(context_lens.tolist()):
        if length == 0:
            continue
        keys, values = gather_context(key_cache, value_cache, block_tables[row], length)
        out[row] = _attend(query[row : row + 1], keys, values, length - 1, scale)[0]
    return out


def check_decode(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    block_tables: Tensor,
    context_lens: Tensor,
) -> None:
    """Raise ShapeError unless the arguments of `paged_decode` fit each other."""
    require_cache_pair(key_cache, value_cache)
    require_like("query", query, key_cache)
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
    scale: float | None = None,
) -> Tensor:
    """Attend causally from a chunk of new tokens per sequence over its blocks.

    Args:
        query: [num_tokens, num_heads, head_dim], the chunks one after the other.
        key_cache: [num_blocks, block_size, num_kv_heads, head_dim], the chunks' keys included.
        value_cache: Same shape as `key_cache`.
        block_tables: [num_seqs, max_blocks] int32 or int64.
        query_starts: [num_seqs + 1]; chunk i is rows [query_starts[i], query_starts[i + 1]).
        context_lens: [num_seqs], tokens of each sequence up to the end of its chunk.
        scale: Factor on the scores; head_dim ** -0.5 by default.

    Returns:
        Same shape and dtype as `query`; sums are taken in fp32.

    Raises:
        ShapeError: A shape or dtype differs from the above.
    """
    check_decode(query, key_cache, value_cache, block_tables, context_lens)
    require_shape("query_starts", query_starts, (len(context_lens) + 1,))
    starts = query_starts.tolist()
    if starts[0] != 0 or starts[-1] != len(query) or starts != sorted(starts):
        raise ShapeError(f"query_starts is {starts}; expected a rise from 0 to {len(query)}")
    out = torch.zeros_like(query)
    for row, length in enumerate(context_lens.tolist()):
        chunk = slice(starts[row], starts[row + 1])
        num_before = length - (chunk.stop - chunk.start)
        if num_before < 0:
            raise ShapeError(f"sequence {row} has a context of {length}, less than its chunk")
        if length:
            keys, values = gather_context(key_cache, value_cache, block_tables[row], length)
            out[chunk] = _attend(query[chunk], keys, values, num_before, scale)
    return out


def copy_blocks(
    *, key_cache: Tensor, value_cache: Tensor, sources: Tensor, targets: Tensor
) -> None:
    """Copy whole blocks, all read before any is written.

    Args:
        key_cache: [num_blocks, block_size, num_kv_heads, head_dim]; changed in place.
        value_cache: Same shape as `key_cache`; changed in place.
        sources: [num_copies] whole numbers.
        targets: [num_copies] whole numbers, all different.

    Raises:
        ShapeError: A shape or dtype differs from the above.
    """
    require_cache_pair(key_cache, value_cache)
    require_shape("targets", targets, tuple(sources.shape))
    require_integers("sources", sources, key_cache)
    require_integers("targets", targets, key_cache)
    for cache in (key_cache, value_cache):
        cache[targets.long()] = cache[sources.long()]


def gather_context(
    key_cache: Tensor, value_cache: Tensor, block_table: Tensor, length: int
) -> tuple[Tensor, Tensor]:
    """Return the first `length` keys and values of a table, [length, num_kv_heads, head_dim]."""
    num_blocks = -(-length // key_cache.shape[1])
    if num_blocks > len(block_table):
        raise ShapeError(f"a context of {length} needs {num_blocks} blocks, not {len(block_table)}")
    blocks = block_table[:num_blocks].long()
    keys, values = (cache[blocks].flatten(0, 1)[:length] for cache in (key_cache, value_cache))
    return keys, values


def _attend(
    query: Tensor, keys: Tensor, values: Tensor, num_before: int, scale: float | None
) -> Tensor:
    """Attend causally; query i stands at position num_before + i."""
    num_queries, num_heads, head_dim = query.shape
    num_shared = num_heads // keys.shape[1]
    keys, values = (one.float().repeat_interleave(num_shared, dim=1) for one in (keys, values))
    scores = torch.einsum("qhd,khd->hqk", query.float(), keys)
    scores *= head_dim**-0.5 if scale is None else scale
    positions = torch.arange(len(keys), device=query.device)
    hidden = positions > (num_before + torch.arange(num_queries, device=query.device))[:, None]
    weights = scores.masked_fill(hidden, float("-inf")).softmax(dim=-1)
    return torch.einsum("hqk,khd->qhd", weights, values).to(query.dtype)
