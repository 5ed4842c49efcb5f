"""Paged decode attention for few, long contexts: each cut into parts that run side by side.

Every part leaves its weighted sum and the logarithm of its weights' sum; the merge weighs the
parts by those.

Source: flash decoding, as described by Dao et al. 2023 (the note "Flash-Decoding for long-context
inference"); the merge is the associative rule of Ye et al. 2025 (arXiv:2501.01005), section 2.2.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.attend_span import attend_span, must_upcast, padded_side
from kernels.attention_arguments import attention_arguments
from kernels.tiles import DecodeTiles, decode_tiles


# One program attends for one sequence, one key head and one part of the context that the window
# shows. Grid: (num_seqs, num_kv_heads, num_splits).
@triton.jit  # type: ignore[untyped-decorator, unused-ignore]  # Triton ships no types.
def _split_decode_kernel(
    query_ptr: tl.tensor,  # [num_seqs, num_heads, head_dim]
    key_cache_ptr: tl.tensor,  # [num_blocks, block_size, num_kv_heads, head_dim]
    value_cache_ptr: tl.tensor,  # [num_blocks, block_size, num_kv_heads, head_dim]
    key_scales_ptr: tl.tensor,  # [num_blocks, block_size, num_kv_heads], or the cache again
    value_scales_ptr: tl.tensor,  # [num_blocks, block_size, num_kv_heads], or the cache again
    block_tables_ptr: tl.tensor,  # [num_seqs, max_blocks]
    context_lens_ptr: tl.tensor,  # [num_seqs]
    partial_ptr: tl.tensor,  # [num_seqs, num_heads, num_splits, head_dim] fp32
    lse_ptr: tl.tensor,  # [num_seqs, num_heads, num_splits] fp32, base 2
    window: tl.tensor,
    scale_log2: tl.tensor,
    stride_q_seq: tl.tensor,
    stride_q_head: tl.tensor,
    stride_kc_block: tl.tensor,
    stride_kc_slot: tl.tensor,
    stride_kc_head: tl.tensor,
    stride_vc_block: tl.tensor,
    stride_vc_slot: tl.tensor,
    stride_vc_head: tl.tensor,
    stride_bt_seq: tl.tensor,
    NUM_SPLITS: tl.constexpr,  # noqa: N803 - constexprs are in capitals
    NUM_KV_HEADS: tl.constexpr,  # noqa: N803
    NUM_SHARED: tl.constexpr,  # noqa: N803 - query heads per key head
    HEAD_DIM: tl.constexpr,  # noqa: N803
    BLOCK_SIZE: tl.constexpr,  # noqa: N803
    HAS_SCALES: tl.constexpr,  # noqa: N803
    TILE_M: tl.constexpr,  # noqa: N803 - NUM_SHARED, padded
    TILE_N: tl.constexpr,  # noqa: N803 - tokens per round
    TILE_D: tl.constexpr,  # noqa: N803 - HEAD_DIM, padded
    UPCAST: tl.constexpr,  # noqa: N803 - multiply in fp32
) -> None:
    seq = tl.program_id(0).to(tl.int64)
    kv_head = tl.program_id(1).to(tl.int64)
    split = tl.program_id(2)
    length = tl.load(context_lens_ptr + seq).to(tl.int32)

    # Parts are whole tiles from the tile of the first visible token on; the last ones of a short
    # context are empty.
    visible = tl.maximum(length - window, 0)
    base = visible // TILE_N * TILE_N
    tiles_per_split = tl.cdiv(tl.cdiv(length - base, TILE_N), NUM_SPLITS)
    first = base + split * tiles_per_split * TILE_N
    last = tl.minimum(first + tiles_per_split * TILE_N, length)

    shared = tl.arange(0, TILE_M)
    dim = tl.arange(0, TILE_D)
    heads = kv_head * NUM_SHARED + shared
    inside = (shared < NUM_SHARED)[:, None] & (dim < HEAD_DIM)[None, :]
    query_offset = seq * stride_q_seq + heads[:, None] * stride_q_head + dim[None, :]
    query = tl.load(query_ptr + query_offset, mask=inside, other=0.0)
    if UPCAST:
        query = query.to(tl.float32)

    highest, total, summed = attend_span(
        query,
        tl.full([TILE_M], 0, dtype=tl.int32) + (length - 1),
        tl.maximum(first, visible),
        last,
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

    is_empty = total == 0.0
    total = tl.where(is_empty, 1.0, total)
    part = (seq * NUM_KV_HEADS * NUM_SHARED + heads) * NUM_SPLITS + split
    tl.store(
        partial_ptr + part[:, None] * HEAD_DIM + dim[None, :], summed / total[:, None], mask=inside
    )
    lse = tl.where(is_empty, float("-inf"), highest + tl.log2(total))
    tl.store(lse_ptr + part, lse, mask=shared < NUM_SHARED)


# One program adds up the parts of one sequence and one query head. Grid: (num_seqs, num_heads).
@triton.jit  # type: ignore[untyped-decorator, unused-ignore]  # Triton ships no types.
def _merge_splits_kernel(
    partial_ptr: tl.tensor,  # [num_seqs, num_heads, num_splits, head_dim] fp32
    lse_ptr: tl.tensor,  # [num_seqs, num_heads, num_splits] fp32, base 2
    out_ptr: tl.tensor,  # [num_seqs, num_heads, head_dim]
    stride_o_seq: tl.tensor,
    stride_o_head: tl.tensor,
    NUM_SPLITS: tl.constexpr,  # noqa: N803
    HEAD_DIM: tl.constexpr,  # noqa: N803
    TILE_S: tl.constexpr,  # noqa: N803 - NUM_SPLITS, padded
    TILE_D: tl.constexpr,  # noqa: N803 - HEAD_DIM, padded
) -> None:
    seq = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1).to(tl.int64)
    split = tl.arange(0, TILE_S)
    dim = tl.arange(0, TILE_D)
    part = (seq * tl.num_programs(1) + head) * NUM_SPLITS + split

    lse = tl.load(lse_ptr + part, mask=split < NUM_SPLITS, other=float("-inf"))
    highest = tl.max(lse, axis=0)
    weights = tl.exp2(lse - tl.where(highest == float("-inf"), 0.0, highest))
    inside = (split < NUM_SPLITS)[:, None] & (dim < HEAD_DIM)[None, :]
    partial = tl.load(partial_ptr + part[:, None] * HEAD_DIM + dim[None, :], mask=inside, other=0.0)
    total = tl.sum(weights, axis=0)
    out = tl.sum(partial * weights[:, None], axis=0) / tl.where(total > 0.0, total, 1.0)
    tl.store(
        out_ptr + seq * stride_o_seq + head * stride_o_head + dim,
        out.to(out_ptr.dtype.element_ty),
        mask=dim < HEAD_DIM,
    )


def split_decode(
    *,
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    block_tables: Tensor,
    context_lens: Tensor,
    num_splits: int,
    key_scales: Tensor | None = None,
    value_scales: Tensor | None = None,
    window: int | None = None,
    scale: float | None = None,
    tiles: DecodeTiles | None = None,
) -> Tensor:
    """Attend as `paged_decode` does, with each context cut into `num_splits` parts.

    Args:
        query: [num_seqs, num_heads, head_dim], fp32, fp16 or bf16, contiguous in the last dim.
        key_cache: [num_blocks, block_size, num_kv_heads, head_dim].
        value_cache: Same shape and dtype as `key_cache`.
        block_tables: [num_seqs, max_blocks] int32 or int64.
        context_lens: [num_seqs]; 0 gives zeros.
        num_splits: At least 1; `tiles.choose_splits` says how many pay.
        key_scales: [num_blocks, block_size, num_kv_heads] fp32, for an int8 cache only.
        value_scales: Same as `key_scales`.
        window: Tokens that are seen, the new one included; None for all.
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
    num_seqs, num_heads, head_dim = query.shape
    num_kv_heads = key_cache.shape[2]
    if not num_seqs:
        return query.clone()
    tiles = tiles or decode_tiles(key_cache)
    partial = torch.empty(
        (num_seqs, num_heads, num_splits, head_dim), dtype=torch.float32, device=query.device
    )
    lse = torch.empty(partial.shape[:3], dtype=torch.float32, device=query.device)
    _split_decode_kernel[(num_seqs, num_kv_heads, num_splits)](
        **arguments,
        partial_ptr=partial,
        lse_ptr=lse,
        stride_q_seq=query.stride(0),
        NUM_SPLITS=num_splits,
        TILE_M=padded_side(num_heads // num_kv_heads),
        TILE_N=tiles.tokens,
        TILE_D=padded_side(head_dim),
        UPCAST=must_upcast(query, key_cache),
        num_warps=tiles.num_warps,
        num_stages=tiles.num_stages,
    )
    return _merge_splits(partial, lse, query.dtype)


def _merge_splits(partial: Tensor, lse: Tensor, dtype: torch.dtype) -> Tensor:
    num_seqs, num_heads, num_splits, head_dim = partial.shape
    # The interpreter cuts off where it should round to bf16.
    out_dtype = torch.float32 if partial.device.type == "cpu" else dtype
    out = torch.empty((num_seqs, num_heads, head_dim), dtype=out_dtype, device=partial.device)
    _merge_splits_kernel[(num_seqs, num_heads)](
        partial,
        lse,
        out,
        *out.stride()[:2],
        NUM_SPLITS=num_splits,
        HEAD_DIM=head_dim,
        TILE_S=triton.next_power_of_2(num_splits),
        TILE_D=triton.next_power_of_2(head_dim),
    )
    return out.to(dtype)
