"""The inner loop that every attention kernel shares: one tile of queries over a span of keys.

The query heads that share a key head are rows of one tile, so each key and value is read once for
all of them. Softmax is online, in base 2 and fp32. Scales of an int8 cache are applied to scores
and weights, TILE_N numbers a round, instead of to keys and values, TILE_N x HEAD_DIM of them.

Source: Kwon et al. 2023 (arXiv:2309.06180), section 4.3; Milakov and Gimelshein 2018
(arXiv:1805.02867) for the online softmax; Dao et al. 2022 (arXiv:2205.14135) for the tiling.
"""

from typing import Final

import torch
import triton
import triton.language as tl
from torch import Tensor

# The smallest side that `tl.dot` takes on every GPU.
MIN_DOT_SIDE: Final = 16


# Not launched: part of a program. Returns the highest score, the sum of weights [TILE_M] and the
# weighted sum of values [TILE_M, TILE_D], all fp32, of the keys [first, last).
@triton.jit  # type: ignore[untyped-decorator, unused-ignore]  # Triton ships no types.
def attend_span(
    query: tl.tensor,  # [TILE_M, TILE_D], in the type that is multiplied in
    query_position: tl.tensor,  # [TILE_M]
    first: tl.tensor,
    last: tl.tensor,
    kv_head: tl.tensor,  # int64
    key_cache_ptr: tl.tensor,  # [num_blocks, block_size, num_kv_heads, head_dim]
    value_cache_ptr: tl.tensor,  # [num_blocks, block_size, num_kv_heads, head_dim]
    key_scales_ptr: tl.tensor,  # [num_blocks, block_size, num_kv_heads]
    value_scales_ptr: tl.tensor,  # [num_blocks, block_size, num_kv_heads]
    table_ptr: tl.tensor,  # [max_blocks], the sequence's
    window: tl.tensor,
    scale_log2: tl.tensor,
    stride_kc_block: tl.tensor,
    stride_kc_slot: tl.tensor,
    stride_kc_head: tl.tensor,
    stride_vc_block: tl.tensor,
    stride_vc_slot: tl.tensor,
    stride_vc_head: tl.tensor,
    NUM_KV_HEADS: tl.constexpr,  # noqa: N803 - constexprs are in capitals
    HEAD_DIM: tl.constexpr,  # noqa: N803
    BLOCK_SIZE: tl.constexpr,  # noqa: N803
    HAS_SCALES: tl.constexpr,  # noqa: N803
    TILE_M: tl.constexpr,  # noqa: N803 - rows
    TILE_N: tl.constexpr,  # noqa: N803 - keys per round
    TILE_D: tl.constexpr,  # noqa: N803 - HEAD_DIM, padded
) -> tl.tensor:
    dim = tl.arange(0, TILE_D)
    highest = tl.full([TILE_M], float("-inf"), dtype=tl.float32)
    total = tl.zeros([TILE_M], dtype=tl.float32)
    summed = tl.zeros([TILE_M, TILE_D], dtype=tl.float32)
    # Rounds start at whole tiles, so that with TILE_N a multiple of BLOCK_SIZE blocks stay whole.
    for start in range(first // TILE_N * TILE_N, last, TILE_N):
        position = start + tl.arange(0, TILE_N)
        read = (position >= first) & (position < last)
        seen = (
            read[None, :]
            & (position[None, :] <= query_position[:, None])
            & (position[None, :] > query_position[:, None] - window)
        )
        # Widened before it meets a stride: block x stride passes 2^31 in caches of a few GiB.
        block = tl.load(table_ptr + position // BLOCK_SIZE, mask=read, other=0).to(tl.int64)
        offset = position % BLOCK_SIZE
        inside = read[:, None] & (dim < HEAD_DIM)[None, :]

        key_row = block * stride_kc_block + offset * stride_kc_slot + kv_head * stride_kc_head
        key = tl.load(key_cache_ptr + key_row[:, None] + dim[None, :], mask=inside, other=0.0)
        scores = tl.dot(query, tl.trans(key.to(query.dtype)), input_precision="ieee")
        scores = scores.to(tl.float32) * scale_log2
        scale_at = (block * BLOCK_SIZE + offset) * NUM_KV_HEADS + kv_head
        if HAS_SCALES:
            scores *= tl.load(key_scales_ptr + scale_at, mask=read, other=0.0)[None, :]
        scores = tl.where(seen, scores, float("-inf"))

        higher = tl.maximum(highest, tl.max(scores, axis=1))
        # A row that has seen nothing yet keeps -inf; minus itself that would be NaN.
        shift = tl.where(higher == float("-inf"), 0.0, higher)
        weights = tl.exp2(scores - shift[:, None])
        shrink = tl.exp2(highest - shift)
        total = total * shrink + tl.sum(weights, axis=1)
        highest = higher

        value_row = block * stride_vc_block + offset * stride_vc_slot + kv_head * stride_vc_head
        value = tl.load(value_cache_ptr + value_row[:, None] + dim[None, :], mask=inside, other=0.0)
        if HAS_SCALES:
            weights *= tl.load(value_scales_ptr + scale_at, mask=read, other=0.0)[None, :]
        added = tl.dot(weights.to(query.dtype), value.to(query.dtype), input_precision="ieee").to(
            tl.float32
        )
        summed = summed * shrink[:, None] + added
    return highest, total, summed


def must_upcast(query: Tensor, cache: Tensor) -> bool:
    """Tell whether a kernel must multiply in fp32 to be right.

    Triton's interpreter multiplies the raw bits of bf16 in `tl.dot`, without a word, and cuts fp32
    off where it should round it to bf16.
    """
    return query.device.type == "cpu" and torch.bfloat16 in (query.dtype, cache.dtype)


def padded_side(size: int) -> int:
    """Return the side of a `tl.dot` tile that holds `size`."""
    return max(MIN_DOT_SIDE, int(triton.next_power_of_2(size)))
