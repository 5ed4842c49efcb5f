"""Chunked prefill attention: several new tokens of each sequence over the blocks of its table."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.attend_span import attend_span, must_upcast, padded_side
from kernels.attention_arguments import attention_arguments
from kernels.shapes import require_integers, require_shape
from kernels.tiles import PrefillTiles, prefill_tiles


# One program attends for one key head and a tile of TILE_M // NUM_SHARED tokens of one chunk, each
# with all the query heads that share the key head. Causal: a token sees what stands before it and
# itself, as far as the window reaches. Grid: (tiles of the longest chunk, num_kv_heads, num_seqs);
# programs past the end of a shorter chunk return at once.
@triton.jit  # type: ignore[untyped-decorator, unused-ignore]  # Triton ships no types.
def _paged_prefill_kernel(
    query_ptr: tl.tensor,  # [num_tokens, num_heads, head_dim]
    key_cache_ptr: tl.tensor,  # [num_blocks, block_size, num_kv_heads, head_dim]
    value_cache_ptr: tl.tensor,  # [num_blocks, block_size, num_kv_heads, head_dim]
    key_scales_ptr: tl.tensor,  # [num_blocks, block_size, num_kv_heads], or the cache again
    value_scales_ptr: tl.tensor,  # [num_blocks, block_size, num_kv_heads], or the cache again
    block_tables_ptr: tl.tensor,  # [num_seqs, max_blocks]
    query_starts_ptr: tl.tensor,  # [num_seqs + 1]
    context_lens_ptr: tl.tensor,  # [num_seqs]
    out_ptr: tl.tensor,  # [num_tokens, num_heads, head_dim]
    window: tl.tensor,
    scale_log2: tl.tensor,
    stride_q_token: tl.tensor,
    stride_q_head: tl.tensor,
    stride_kc_block: tl.tensor,
    stride_kc_slot: tl.tensor,
    stride_kc_head: tl.tensor,
    stride_vc_block: tl.tensor,
    stride_vc_slot: tl.tensor,
    stride_vc_head: tl.tensor,
    stride_bt_seq: tl.tensor,
    stride_o_token: tl.tensor,
    stride_o_head: tl.tensor,
    NUM_KV_HEADS: tl.constexpr,  # noqa: N803 - constexprs are in capitals
    NUM_SHARED: tl.constexpr,  # noqa: N803 - query heads per key head
    HEAD_DIM: tl.constexpr,  # noqa: N803
    BLOCK_SIZE: tl.constexpr,  # noqa: N803
    HAS_SCALES: tl.constexpr,  # noqa: N803
    TILE_M: tl.constexpr,  # noqa: N803 - rows: tokens x NUM_SHARED, padded
    TILE_N: tl.constexpr,  # noqa: N803 - keys per round
    TILE_D: tl.constexpr,  # noqa: N803 - HEAD_DIM, padded
    UPCAST: tl.constexpr,  # noqa: N803 - multiply in fp32
) -> None:
    NUM_TOKENS: tl.constexpr = TILE_M // NUM_SHARED  # noqa: N806
    # The last tiles see the most keys: they start first, so that none is left alone at the end.
    tile = tl.num_programs(0) - 1 - tl.program_id(0)
    kv_head = tl.program_id(1).to(tl.int64)
    seq = tl.program_id(2).to(tl.int64)
    chunk_start = tl.load(query_starts_ptr + seq).to(tl.int32)
    num_queries = tl.load(query_starts_ptr + seq + 1).to(tl.int32) - chunk_start
    first_query = tile * NUM_TOKENS
    if first_query >= num_queries:
        return
    length = tl.load(context_lens_ptr + seq).to(tl.int32)
    num_before = length - num_queries

    row = tl.arange(0, TILE_M)
    dim = tl.arange(0, TILE_D)
    query = first_query + row // NUM_SHARED
    heads = kv_head * NUM_SHARED + row % NUM_SHARED
    row_inside = (row < NUM_TOKENS * NUM_SHARED) & (query < num_queries)
    inside = row_inside[:, None] & (dim < HEAD_DIM)[None, :]
    token = (chunk_start + query).to(tl.int64)
    query_offset = token[:, None] * stride_q_token + heads[:, None] * stride_q_head + dim[None, :]
    queries = tl.load(query_ptr + query_offset, mask=inside, other=0.0)
    if UPCAST:
        queries = queries.to(tl.float32)

    _, total, summed = attend_span(
        queries,
        num_before + query,
        tl.maximum(num_before + first_query + 1 - window, 0),
        tl.minimum(num_before + first_query + NUM_TOKENS, length),
        kv_head,
        key_cache_ptr,
        value_cache_ptr,
        key_scales_ptr,
        value_scales_ptr,
        block_tables_ptr + seq * stride_bt_seq,
        window,
        scale_log2,
        stride_kc_block,
        stride_kc_slot,
        stride_kc_head,
        stride_vc_block,
        stride_vc_slot,
        stride_vc_head,
        NUM_KV_HEADS,
        HEAD_DIM,
        BLOCK_SIZE,
        HAS_SCALES,
        TILE_M,
        TILE_N,
        TILE_D,
    )

    out = summed / tl.where(total > 0.0, total, 1.0)[:, None]
    out_offset = token[:, None] * stride_o_token + heads[:, None] * stride_o_head + dim[None, :]
    tl.store(out_ptr + out_offset, out.to(out_ptr.dtype.element_ty), mask=inside)


def paged_prefill(
    *,
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    block_tables: Tensor,
    query_starts: Tensor,
    context_lens: Tensor,
    max_chunk: int,
    key_scales: Tensor | None = None,
    value_scales: Tensor | None = None,
    window: int | None = None,
    scale: float | None = None,
    tiles: PrefillTiles | None = None,
) -> Tensor:
    """Attend causally from a chunk of new tokens per sequence over its blocks.

    Args:
        query: [num_tokens, num_heads, head_dim], the chunks one after the other; fp32, fp16 or
            bf16, contiguous in the last dim.
        key_cache: [num_blocks, block_size, num_kv_heads, head_dim], the chunks' keys included;
            fp32, fp16, bf16, fp8 e4m3 or int8.
        value_cache: Same shape and dtype as `key_cache`.
        block_tables: [num_seqs, max_blocks] int32 or int64; entries past the context, or wholly
            behind the first token's window, are not read.
        query_starts: [num_seqs + 1] on the device, rising from 0 to num_tokens; chunk i is rows
            [query_starts[i], query_starts[i + 1]).
        context_lens: [num_seqs] on the device, tokens of each sequence up to the end of its chunk.
        max_chunk: Tokens of the longest chunk, or more.
        key_scales: [num_blocks, block_size, num_kv_heads] fp32, for an int8 cache only.
        value_scales: Same as `key_scales`.
        window: Tokens that each token sees, itself included; None for all before it.
        scale: Factor on the scores; head_dim ** -0.5 by default.
        tiles: How the work is cut; chosen for the device by default.

    Returns:
        Same shape and dtype as `query`; sums are taken in fp32.

    Raises:
        ShapeError: A shape or dtype differs from the above.
        UnavailableError: The cache is fp8 and the GPU too old for it.
    """
    arguments = attention_arguments(
        query=query,
        key_cache=key_cache,
        value_cache=value_cache,
        block_tables=block_tables,
        context_lens=context_lens,
        key_scales=key_scales,
        value_scales=value_scales,
        window=window,
        scale=scale,
    )
    require_shape("query_starts", query_starts, (len(context_lens) + 1,))
    require_integers("query_starts", query_starts, key_cache)
    upcast = must_upcast(query, key_cache)
    out = torch.empty(
        query.shape, dtype=torch.float32 if upcast else query.dtype, device=query.device
    )
    num_tokens, num_heads, head_dim = query.shape
    num_kv_heads = key_cache.shape[2]
    if not num_tokens:
        return query.clone()
    num_shared = num_heads // num_kv_heads
    tiles = tiles or prefill_tiles(key_cache, num_shared=num_shared)
    num_tiles = triton.cdiv(max_chunk, tiles.rows // num_shared)
    _paged_prefill_kernel[(num_tiles, num_kv_heads, len(context_lens))](
        **arguments,
        query_starts_ptr=query_starts.contiguous(),
        out_ptr=out,
        stride_q_token=query.stride(0),
        stride_o_token=out.stride(0),
        stride_o_head=out.stride(1),
        TILE_M=tiles.rows,
        TILE_N=tiles.tokens,
        TILE_D=padded_side(head_dim),
        UPCAST=upcast,
        num_warps=tiles.num_warps,
        num_stages=tiles.num_stages,
    )
    return out.to(query.dtype)
