"""Write new keys and values into their slots of the paged cache, in one launch."""

import triton
import triton.language as tl
from torch import Tensor

from kernels.reference_store import INT8_LARGEST, cast, check_store, largest_finite
from kernels.shapes import require_cache_pair, require_dense_rows


# One program casts one token's keys and values, all heads, to the cache's type.
# Grid: (num_tokens,).
@triton.jit  # type: ignore[untyped-decorator, unused-ignore]  # Triton ships no types.
def _store_kv_kernel(
    key_ptr: tl.tensor,  # [num_tokens, num_kv_heads, head_dim]
    value_ptr: tl.tensor,  # [num_tokens, num_kv_heads, head_dim]
    slots_ptr: tl.tensor,  # [num_tokens]
    key_cache_ptr: tl.tensor,  # [num_blocks, block_size, num_kv_heads, head_dim]
    value_cache_ptr: tl.tensor,  # [num_blocks, block_size, num_kv_heads, head_dim]
    stride_k_token: tl.tensor,
    stride_k_head: tl.tensor,
    stride_v_token: tl.tensor,
    stride_v_head: tl.tensor,
    stride_kc_block: tl.tensor,
    stride_kc_slot: tl.tensor,
    stride_kc_head: tl.tensor,
    stride_vc_block: tl.tensor,
    stride_vc_slot: tl.tensor,
    stride_vc_head: tl.tensor,
    NUM_KV_HEADS: tl.constexpr,  # noqa: N803 - constexprs are in capitals
    HEAD_DIM: tl.constexpr,  # noqa: N803
    BLOCK_SIZE: tl.constexpr,  # noqa: N803
    TILE_ROW: tl.constexpr,  # noqa: N803 - NUM_KV_HEADS x HEAD_DIM, padded
    BOUND: tl.constexpr,  # noqa: N803 - saturate there; 0 for a type with the range of fp32
) -> None:
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots_ptr + token).to(tl.int64)
    if slot < 0:
        return
    block = slot // BLOCK_SIZE
    offset = slot % BLOCK_SIZE
    element = tl.arange(0, TILE_ROW)
    inside = element < NUM_KV_HEADS * HEAD_DIM
    head = element // HEAD_DIM
    dim = element % HEAD_DIM

    key = tl.load(
        key_ptr + token * stride_k_token + head * stride_k_head + dim, mask=inside, other=0.0
    )
    if BOUND > 0:
        key = tl.minimum(tl.maximum(key.to(tl.float32), -BOUND), BOUND)
    key_target = block * stride_kc_block + offset * stride_kc_slot + head * stride_kc_head + dim
    tl.store(key_cache_ptr + key_target, key.to(key_cache_ptr.dtype.element_ty), mask=inside)

    value = tl.load(
        value_ptr + token * stride_v_token + head * stride_v_head + dim, mask=inside, other=0.0
    )
    if BOUND > 0:
        value = tl.minimum(tl.maximum(value.to(tl.float32), -BOUND), BOUND)
    value_target = block * stride_vc_block + offset * stride_vc_slot + head * stride_vc_head + dim
    tl.store(
        value_cache_ptr + value_target, value.to(value_cache_ptr.dtype.element_ty), mask=inside
    )


# Part of a program: codes one token's vectors, a row per head, and writes codes and scales.
@triton.jit  # type: ignore[untyped-decorator, unused-ignore]  # Triton ships no types.
def _quantise_rows(
    source_ptr: tl.tensor,  # [num_kv_heads, head_dim], the token's
    target_ptr: tl.tensor,  # [num_kv_heads, head_dim], the slot's
    scales_ptr: tl.tensor,  # [num_kv_heads], the slot's
    stride_s_head: tl.tensor,
    stride_t_head: tl.tensor,
    NUM_KV_HEADS: tl.constexpr,  # noqa: N803
    HEAD_DIM: tl.constexpr,  # noqa: N803
    TILE_H: tl.constexpr,  # noqa: N803 - NUM_KV_HEADS, padded
    TILE_D: tl.constexpr,  # noqa: N803 - HEAD_DIM, padded
    LARGEST: tl.constexpr,  # noqa: N803
) -> None:
    head = tl.arange(0, TILE_H)
    dim = tl.arange(0, TILE_D)
    inside = (head < NUM_KV_HEADS)[:, None] & (dim < HEAD_DIM)[None, :]
    numbers = tl.load(
        source_ptr + head[:, None] * stride_s_head + dim[None, :], mask=inside, other=0.0
    ).to(tl.float32)
    scales = tl.div_rn(
        tl.max(tl.abs(numbers), axis=1), tl.full([TILE_H], LARGEST, dtype=tl.float32)
    )
    # Zeros stay zeros whatever they are divided by.
    divisors = tl.where(scales > 0.0, scales, 1.0)
    quotients = tl.div_rn(numbers, tl.broadcast_to(divisors[:, None], [TILE_H, TILE_D]))
    # 1.5 x 2^23 pushes the fraction out of an fp32, which rounds it half to even.
    codes = (quotients + 12582912.0) - 12582912.0
    codes = tl.minimum(tl.maximum(codes, -LARGEST), LARGEST)
    tl.store(
        target_ptr + head[:, None] * stride_t_head + dim[None, :], codes.to(tl.int8), mask=inside
    )
    tl.store(scales_ptr + head, scales, mask=head < NUM_KV_HEADS)


# One program codes one token's keys and values as int8, each head with a scale of its own.
# Grid: (num_tokens,).
@triton.jit  # type: ignore[untyped-decorator, unused-ignore]  # Triton ships no types.
def _store_codes_kernel(
    key_ptr: tl.tensor,  # [num_tokens, num_kv_heads, head_dim]
    value_ptr: tl.tensor,  # [num_tokens, num_kv_heads, head_dim]
    slots_ptr: tl.tensor,  # [num_tokens]
    key_cache_ptr: tl.tensor,  # [num_blocks, block_size, num_kv_heads, head_dim] int8
    value_cache_ptr: tl.tensor,  # [num_blocks, block_size, num_kv_heads, head_dim] int8
    key_scales_ptr: tl.tensor,  # [num_blocks, block_size, num_kv_heads] fp32
    value_scales_ptr: tl.tensor,  # [num_blocks, block_size, num_kv_heads] fp32
    stride_k_token: tl.tensor,
    stride_k_head: tl.tensor,
    stride_v_token: tl.tensor,
    stride_v_head: tl.tensor,
    stride_kc_block: tl.tensor,
    stride_kc_slot: tl.tensor,
    stride_kc_head: tl.tensor,
    stride_vc_block: tl.tensor,
    stride_vc_slot: tl.tensor,
    stride_vc_head: tl.tensor,
    NUM_KV_HEADS: tl.constexpr,  # noqa: N803
    HEAD_DIM: tl.constexpr,  # noqa: N803
    BLOCK_SIZE: tl.constexpr,  # noqa: N803
    TILE_H: tl.constexpr,  # noqa: N803 - NUM_KV_HEADS, padded
    TILE_D: tl.constexpr,  # noqa: N803 - HEAD_DIM, padded
    LARGEST: tl.constexpr,  # noqa: N803
) -> None:
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots_ptr + token).to(tl.int64)
    if slot < 0:
        return
    block = slot // BLOCK_SIZE
    offset = slot % BLOCK_SIZE
    _quantise_rows(
        key_ptr + token * stride_k_token,
        key_cache_ptr + block * stride_kc_block + offset * stride_kc_slot,
        key_scales_ptr + slot * NUM_KV_HEADS,
        stride_k_head,
        stride_kc_head,
        NUM_KV_HEADS,
        HEAD_DIM,
        TILE_H,
        TILE_D,
        LARGEST,
    )
    _quantise_rows(
        value_ptr + token * stride_v_token,
        value_cache_ptr + block * stride_vc_block + offset * stride_vc_slot,
        value_scales_ptr + slot * NUM_KV_HEADS,
        stride_v_head,
        stride_vc_head,
        NUM_KV_HEADS,
        HEAD_DIM,
        TILE_H,
        TILE_D,
        LARGEST,
    )


def store_kv(
    *,
    key: Tensor,
    value: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    slots: Tensor,
    key_scales: Tensor | None = None,
    value_scales: Tensor | None = None,
) -> None:
    """Write each token's key and value into its slot of the paged cache.

    Args:
        key: [num_tokens, num_kv_heads, head_dim], fp32, fp16 or bf16, contiguous in the last dim.
        value: Same shape and dtype as `key`.
        key_cache: [num_blocks, block_size, num_kv_heads, head_dim]; changed in place. A float
            type is rounded to, fp16 and fp8 saturating; int8 is scaled per token and head.
        value_cache: Same shape and dtype as `key_cache`; changed in place.
        slots: [num_tokens] int64; -1 marks padding and is skipped.
        key_scales: [num_blocks, block_size, num_kv_heads] fp32, for int8 only; changed in place.
        value_scales: Same as `key_scales`.

    Raises:
        ShapeError: A shape or dtype differs from the above.
        UnavailableError: The cache is fp8 and the GPU too old for it.
    """
    require_cache_pair(key_cache, value_cache, key_scales, value_scales)
    check_store(key, value, key_cache, value_cache, slots)
    require_dense_rows("key", key)
    require_dense_rows("value", value)
    if not len(key):
        return
    if key_scales is None and not key.is_cuda:
        # The interpreter cuts off where it should round; what is rounded already it copies.
        key, value = cast(key, key_cache.dtype), cast(value, key_cache.dtype)
    _, block_size, num_kv_heads, head_dim = key_cache.shape
    strides = (
        *key.stride()[:2],
        *value.stride()[:2],
        *key_cache.stride()[:3],
        *value_cache.stride()[:3],
    )
    tensors = (key, value, slots.contiguous(), key_cache, value_cache)
    if key_scales is not None:
        _store_codes_kernel[(len(key),)](
            *tensors,
            key_scales,
            value_scales,
            *strides,
            NUM_KV_HEADS=num_kv_heads,
            HEAD_DIM=head_dim,
            BLOCK_SIZE=block_size,
            TILE_H=triton.next_power_of_2(num_kv_heads),
            TILE_D=triton.next_power_of_2(head_dim),
            LARGEST=INT8_LARGEST,
        )
        return
    bound = largest_finite(key_cache.dtype) if key.dtype != key_cache.dtype else None
    _store_kv_kernel[(len(key),)](
        *tensors,
        *strides,
        NUM_KV_HEADS=num_kv_heads,
        HEAD_DIM=head_dim,
        BLOCK_SIZE=block_size,
        TILE_ROW=triton.next_power_of_2(num_kv_heads * head_dim),
        BOUND=bound or 0.0,
    )
