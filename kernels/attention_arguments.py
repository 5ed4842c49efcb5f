"""What every attention kernel is launched with: queries, cache, tables, and the sizes of its heads.

Checked here once, so that no kernel is reached by a pointer that does not fit.
"""

from typing import Final

from torch import Tensor

from kernels.reference import check_decode
from kernels.shapes import require_cache_pair, require_dense_rows

LOG2_E: Final = 1.4426950408889634
# Wider than any context: a kernel without a window takes this one.
NO_WINDOW: Final = 2**31 - 1


def attention_arguments(
    *,
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    block_tables: Tensor,
    context_lens: Tensor,
    key_scales: Tensor | None,
    value_scales: Tensor | None,
    window: int | None,
    scale: float | None,
) -> dict[str, Tensor | int | float]:
    """Return the arguments that all attention kernels share, by the kernels' names for them.

    Args:
        query: [rows, num_heads, head_dim], fp32, fp16 or bf16, contiguous in the last dim.
        key_cache: [num_blocks, block_size, num_kv_heads, head_dim].
        value_cache: Same shape and dtype as `key_cache`.
        block_tables: [num_seqs, max_blocks] int32 or int64.
        context_lens: [num_seqs].
        key_scales: [num_blocks, block_size, num_kv_heads] fp32, for an int8 cache only.
        value_scales: Same as `key_scales`.
        window: Tokens that are seen; None for all.
        scale: Factor on the scores; None for head_dim ** -0.5.

    Raises:
        ShapeError: A shape or dtype differs from the above.
        UnavailableError: The cache is fp8 and the GPU too old for it.
    """
    require_cache_pair(key_cache, value_cache, key_scales, value_scales)
    check_decode(query, key_cache, block_tables, context_lens, window)
    require_dense_rows("query", query)
    # Kernels step from entry to entry of a table.
    tables = block_tables if block_tables.stride(1) == 1 else block_tables.contiguous()
    num_heads, head_dim = query.shape[1:]
    block_size, num_kv_heads = key_cache.shape[1:3]
    return {
        "query_ptr": query,
        "key_cache_ptr": key_cache,
        "value_cache_ptr": value_cache,
        # A kernel without scales reads none; it needs a pointer all the same.
        "key_scales_ptr": key_cache if key_scales is None else key_scales,
        "value_scales_ptr": value_cache if value_scales is None else value_scales,
        "block_tables_ptr": tables,
        "context_lens_ptr": context_lens.contiguous(),
        "window": NO_WINDOW if window is None else window,
        "scale_log2": (head_dim**-0.5 if scale is None else scale) * LOG2_E,
        "stride_q_head": query.stride(1),
        "stride_kc_block": key_cache.stride(0),
        "stride_kc_slot": key_cache.stride(1),
        "stride_kc_head": key_cache.stride(2),
        "stride_vc_block": value_cache.stride(0),
        "stride_vc_slot": value_cache.stride(1),
        "stride_vc_head": value_cache.stride(2),
        "stride_bt_seq": tables.stride(0),
        "NUM_KV_HEADS": num_kv_heads,
        "NUM_SHARED": num_heads // num_kv_heads,
        "HEAD_DIM": head_dim,
        "BLOCK_SIZE": block_size,
        "HAS_SCALES": key_scales is not None,
    }
