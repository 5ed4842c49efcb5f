"""Paged decode attention: one new token per sequence over the blocks of its table.

The query heads that share a key head are one tile, so each key and value is read once for all of
them. Softmax is online, in base 2 and fp32.

Source: Kwon et al. 2023 (arXiv:2309.06180), section 4.3; Milakov and Gimelshein 2018
(arXiv:1805.02867) for the online softmax.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.reference import check_decode
from kernels.shapes import require_dense_rows

LOG2_E = 1.4426950408889634
# The smallest side that `tl.dot` takes on every GPU.
MIN_DOT_SIDE = 16


# One program attends for one sequence and one key head, over all of the context, TILE_N tokens at
# a time. Grid: (num_seqs, num_kv_heads).
@triton.jit  # type: ignore[untyped-decorator, unused-ignore]  # Triton ships no types.
def _paged_decode_kernel(
    query_ptr: Any,  # [num_seqs, num_heads, head_dim]
    key_cache_ptr: Any,  # [num_blocks, block_size, num_kv_heads, head_dim]
    value_cache_ptr: Any,  # [num_blocks, block_size, num_kv_heads, head_dim]
    block_tables_ptr: Any,  # [num_seqs, max_blocks]
    context_lens_ptr: Any,  # [num_seqs]
    out_ptr: Any,  # [num_seqs, num_heads, head_dim]
    scale_log2: Any,
    stride_q_seq: Any,
    stride_q_head: Any,
    stride_kc_block: Any,
    stride_kc_slot: Any,
    stride_kc_head: Any,
    stride_vc_block: Any,
    stride_vc_slot: Any,
    stride_vc_head: Any,
    stride_bt_seq: Any,
    stride_o_seq: Any,
    stride_o_head: Any,
    NUM_SHARED: tl.constexpr,  # noqa: N803 - query heads per key head
    HEAD_DIM: tl.constexpr,  # noqa: N803
    BLOCK_SIZE: tl.constexpr,  # noqa: N803
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
    query_inside = (shared < NUM_SHARED)[:, None] & (dim < HEAD_DIM)[None, :]
    query_offset = seq * stride_q_seq + heads[:, None] * stride_q_head + dim[None, :]
    query = tl.load(query_ptr + query_offset, mask=query_inside, other=0.0)
    if UPCAST:
        query = query.to(tl.float32)

    highest = tl.full([TILE_M], float("-inf"), dtype=tl.float32)
    total = tl.zeros([TILE_M], dtype=tl.float32)
    summed = tl.zeros([TILE_M, TILE_D], dtype=tl.float32)
    for start in range(0, length, TILE_N):
        position = start + tl.arange(0, TILE_N)
        visible = position < length
        # Widened before it meets a stride: block x stride passes 2^31 in caches of a few GiB.
        block = tl.load(
            block_tables_ptr + seq * stride_bt_seq + position // BLOCK_SIZE, mask=visible, other=0
        ).to(tl.int64)
        offset = position % BLOCK_SIZE
        inside = visible[:, None] & (dim < HEAD_DIM)[None, :]

        key_row = block * stride_kc_block + offset * stride_kc_slot + kv_head * stride_kc_head
        key = tl.load(key_cache_ptr + key_row[:, None] + dim[None, :], mask=inside, other=0.0)
        if UPCAST:
            key = key.to(tl.float32)
        scores = tl.dot(query, tl.trans(key), input_precision="ieee").to(tl.float32) * scale_log2
        scores = tl.where(visible[None, :], scores, float("-inf"))

        higher = tl.maximum(highest, tl.max(scores, axis=1))
        weights = tl.exp2(scores - higher[:, None])
        shrink = tl.exp2(highest - higher)
        total = total * shrink + tl.sum(weights, axis=1)
        highest = higher

        value_row = block * stride_vc_block + offset * stride_vc_slot + kv_head * stride_vc_head
        value = tl.load(value_cache_ptr + value_row[:, None] + dim[None, :], mask=inside, other=0.0)
        if UPCAST:
            value = value.to(tl.float32)
        summed = summed * shrink[:, None] + tl.dot(
            weights.to(value.dtype), value, input_precision="ieee"
        ).to(tl.float32)

    # An empty context has no round, and gives zeros.
    out = summed / tl.where(total > 0.0, total, 1.0)[:, None]
    out_offset = seq * stride_o_seq + heads[:, None] * stride_o_head + dim[None, :]
    tl.store(out_ptr + out_offset, out.to(out_ptr.dtype.element_ty), mask=query_inside)


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
        query: [num_seqs, num_heads, head_dim], contiguous in the last dim.
        key_cache: [num_blocks, block_size, num_kv_heads, head_dim], the new tokens' keys included.
        value_cache: Same shape as `key_cache`.
        block_tables: [num_seqs, max_blocks] int32 or int64; entries past the context are not read.
        context_lens: [num_seqs], tokens to attend to, the new one included; 0 gives zeros. At most
            what the tables hold.
        scale: Factor on the scores; head_dim ** -0.5 by default.

    Returns:
        Same shape and dtype as `query`; sums are taken in fp32.

    Raises:
        ShapeError: A shape or dtype differs from the above.
    """
    check_decode(query, key_cache, value_cache, block_tables, context_lens)
    require_dense_rows("query", query)
    upcast = _must_upcast(query)
    out = torch.empty(
        query.shape, dtype=torch.float32 if upcast else query.dtype, device=query.device
    )
    num_seqs, num_heads, head_dim = query.shape
    _, block_size, num_kv_heads, _ = key_cache.shape
    if not num_seqs:
        return query.clone()
    tables = block_tables if block_tables.stride(1) == 1 else block_tables.contiguous()
    num_shared = num_heads // num_kv_heads
    _paged_decode_kernel[(num_seqs, num_kv_heads)](
        query,
        key_cache,
        value_cache,
        tables,
        context_lens.contiguous(),
        out,
        (head_dim**-0.5 if scale is None else scale) * LOG2_E,
        *query.stride()[:2],
        *key_cache.stride()[:3],
        *value_cache.stride()[:3],
        tables.stride(0),
        *out.stride()[:2],
        NUM_SHARED=num_shared,
        HEAD_DIM=head_dim,
        BLOCK_SIZE=block_size,
        TILE_M=max(MIN_DOT_SIDE, triton.next_power_of_2(num_shared)),
        TILE_N=max(MIN_DOT_SIDE, triton.next_power_of_2(block_size)),
        TILE_D=max(MIN_DOT_SIDE, triton.next_power_of_2(head_dim)),
        UPCAST=upcast,
    )
    return out.to(query.dtype)


def _must_upcast(query: Tensor) -> bool:
    """Tell whether the kernel must work in fp32 throughout to be right.

    Triton's interpreter multiplies the raw bits of bf16 in `tl.dot`, without a word, and cuts fp32
    off where it should round it to bf16.
    """
    return query.dtype == torch.bfloat16 and query.device.type == "cpu"
