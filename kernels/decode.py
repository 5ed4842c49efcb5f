"""Paged decode attention, one program per sequence and key head: for batches that fill the GPU."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.attend_span import attend_span, must_upcast, padded_side
from kernels.attention_arguments import attention_arguments
from kernels.tiles import DecodeTiles, decode_tiles


# One program attends for one sequence and one key head, over all of the context that its window
# shows, TILE_N tokens at a time. Grid: (num_seqs, num_kv_heads).
@triton.jit  # type: ignore[untyped-decorator, unused-ignore]  # Triton ships no types.
def _paged_decode_kernel(
    query_ptr: tl.tensor,  # [num_seqs, num_heads, head_dim]
    key_cache_ptr: tl.tensor,  # [num_blocks, block_size, num_kv_heads, head_dim]
    value_cache_ptr: tl.tensor,  # [num_blocks, block_size, num_kv_heads, head_dim]
    key_scales_ptr: tl.tensor,  # [num_blocks, block_size, num_kv_heads], or the cache again
    value_scales_ptr: tl.tensor,  # [num_blocks, block_size, num_kv_heads], or the cache again
    block_tables_ptr: tl.tensor,  # [num_seqs, max_blocks]
    context_lens_ptr: tl.tensor,  # [num_seqs]
    out_ptr: tl.tensor,  # [num_seqs, num_heads, head_dim]
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
    stride_o_seq: tl.tensor,
    stride_o_head: tl.tensor,
    NUM_KV_HEADS: tl.constexpr,  # noqa: N803 - constexprs are in capitals
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
    length = tl.load(context_lens_ptr + seq).to(tl.int32)

    shared = tl.arange(0, TILE_M)
    dim = tl.arange(0, TILE_D)
    heads = kv_head * NUM_SHARED + shared
    inside = (shared < NUM_SHARED)[:, None] & (dim < HEAD_DIM)[None, :]
    query_offset = seq * stride_q_seq + heads[:, None] * stride_q_head + dim[None, :]
    query = tl.load(query_ptr + query_offset, mask=inside, other=0.0)
    if UPCAST:
        query = query.to(tl.float32)

    _, total, summed = attend_span(
        query,
        tl.full([TILE_M], 0, dtype=tl.int32) + (length - 1),
        tl.maximum(length - window, 0),
        length,
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

    # An empty context has no round, and gives zeros.
    out = summed / tl.where(total > 0.0, total, 1.0)[:, None]
    out_offset = seq * stride_o_seq + heads[:, None] * stride_o_head + dim[None, :]
    tl.store(out_ptr + out_offset, out.to(out_ptr.dtype.element_ty), mask=inside)


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
    tiles: DecodeTiles | None = None,
) -> Tensor:
    """Attend from one new token per sequence over the sequence's blocks.

    Args:
        query: [num_seqs, num_heads, head_dim], fp32, fp16 or bf16, contiguous in the last dim.
        key_cache: [num_blocks, block_size, num_kv_heads, head_dim], the new tokens' keys included;
            fp32, fp16, bf16, fp8 e4m3 or int8.
        value_cache: Same shape and dtype as `key_cache`.
        block_tables: [num_seqs, max_blocks] int32 or int64; entries past the context, or wholly
            behind the window, are not read.
        context_lens: [num_seqs], tokens to attend to, the new one included; 0 gives zeros. At most
            what the tables hold.
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
    upcast = must_upcast(query, key_cache)
    out = torch.empty(
        query.shape, dtype=torch.float32 if upcast else query.dtype, device=query.device
    )
    num_seqs, num_heads, head_dim = query.shape
    num_kv_heads = key_cache.shape[2]
    if not num_seqs:
        return query.clone()
    tiles = tiles or decode_tiles(key_cache)
    _paged_decode_kernel[(num_seqs, num_kv_heads)](
        **arguments,
        out_ptr=out,
        stride_q_seq=query.stride(0),
        stride_o_seq=out.stride(0),
        stride_o_head=out.stride(1),
        TILE_M=padded_side(num_heads // num_kv_heads),
        TILE_N=tiles.tokens,
        TILE_D=padded_side(head_dim),
        UPCAST=upcast,
        num_warps=tiles.num_warps,
        num_stages=tiles.num_stages,
    )
    return out.to(query.dtype)
