"""Write new keys and values into their slots of the paged cache, in one launch."""

from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from kernels.reference import check_store
from kernels.shapes import require_dense_rows


# One program copies one token's keys and values, all heads. Grid: (num_tokens,).
@triton.jit  # type: ignore[untyped-decorator, unused-ignore]  # Triton ships no types.
def _store_kv_kernel(
    key_ptr: Any,  # [num_tokens, num_kv_heads, head_dim]
    value_ptr: Any,  # [num_tokens, num_kv_heads, head_dim]
    slots_ptr: Any,  # [num_tokens]
    key_cache_ptr: Any,  # [num_blocks, block_size, num_kv_heads, head_dim]
    value_cache_ptr: Any,  # [num_blocks, block_size, num_kv_heads, head_dim]
    stride_k_token: Any,
    stride_k_head: Any,
    stride_v_token: Any,
    stride_v_head: Any,
    stride_kc_block: Any,
    stride_kc_slot: Any,
    stride_kc_head: Any,
    stride_vc_block: Any,
    stride_vc_slot: Any,
    stride_vc_head: Any,
    NUM_KV_HEADS: tl.constexpr,  # noqa: N803 - constexprs are in capitals
    HEAD_DIM: tl.constexpr,  # noqa: N803
    BLOCK_SIZE: tl.constexpr,  # noqa: N803
    TILE_ROW: tl.constexpr,  # noqa: N803
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
    key_target = block * stride_kc_block + offset * stride_kc_slot + head * stride_kc_head + dim
    tl.store(key_cache_ptr + key_target, key, mask=inside)

    value = tl.load(
        value_ptr + token * stride_v_token + head * stride_v_head + dim, mask=inside, other=0.0
    )
    value_target = block * stride_vc_block + offset * stride_vc_slot + head * stride_vc_head + dim
    tl.store(value_cache_ptr + value_target, value, mask=inside)


def store_kv(
    *, key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slots: Tensor
) -> None:
    """Write each token's key and value into its slot of the paged cache.

    Args:
        key: [num_tokens, num_kv_heads, head_dim], contiguous in the last dim.
        value: Same shape and dtype as `key`.
        key_cache: [num_blocks, block_size, num_kv_heads, head_dim]; changed in place.
        value_cache: Same shape as `key_cache`; changed in place.
        slots: [num_tokens] int64; -1 marks padding and is skipped.

    Raises:
        ShapeError: A shape or dtype differs from the above.
    """
    check_store(key, value, key_cache, value_cache, slots)
    require_dense_rows("key", key)
    require_dense_rows("value", value)
    if not len(key):
        return
    _, block_size, num_kv_heads, head_dim = key_cache.shape
    _store_kv_kernel[(len(key),)](
        key,
        value,
        slots.contiguous(),
        key_cache,
        value_cache,
        *key.stride()[:2],
        *value.stride()[:2],
        *key_cache.stride()[:3],
        *value_cache.stride()[:3],
        NUM_KV_HEADS=num_kv_heads,
        HEAD_DIM=head_dim,
        BLOCK_SIZE=block_size,
        TILE_ROW=triton.next_power_of_2(num_kv_heads * head_dim),
    )
