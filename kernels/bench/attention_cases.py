"""The attention kernels as cases: decode whole and in parts, and chunked prefill."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from kernels import reference
from kernels.bench.kernel_case import KernelCase
from kernels.bench.paged_inputs import SEED, HeadSizes, PagedInputs, noise, paged_inputs
from kernels.decode import paged_decode
from kernels.prefill import paged_prefill
from kernels.split_decode import split_decode
from kernels.tiles import DecodeTiles, PrefillTiles

# Weights are rounded to bf16 before they meet the values.
TOLERANCE = 3e-2

Decode = Callable[..., Tensor]


def decode_case(
    sizes: HeadSizes,
    *,
    batch: int,
    context: int,
    stored: torch.dtype,
    device: torch.device,
    num_splits: int = 1,
    window: int | None = None,
    tiles: DecodeTiles | None = None,
) -> KernelCase:
    """One new token for each of `batch` contexts."""
    inputs = paged_inputs(sizes, batch=batch, context=context, stored=stored, device=device)
    generator = torch.Generator(device).manual_seed(SEED)
    query = noise((batch, sizes.num_heads, sizes.head_dim), generator, device)
    decode: Decode = (
        paged_decode if num_splits == 1 else partial(split_decode, num_splits=num_splits)
    )
    over = partial(
        decode,
        query=query,
        context_lens=inputs.context_lens,
        window=window,
        tiles=tiles,
        **inputs.caches,
    )
    seen_ratio = 1.0 if window is None else min(window / context, 1.0)
    return KernelCase(
        name=_decode_name(batch, context, stored, num_splits, window),
        run=lambda: over(block_tables=inputs.scattered),
        difference=lambda: _difference(
            over(block_tables=inputs.scattered), _decode_reference(inputs, query, window)
        ),
        tolerance=TOLERANCE,
        num_bytes=int(inputs.bytes_read * seen_ratio) + 2 * query.nbytes,
        in_order=lambda: over(block_tables=inputs.in_order),
        torch_run=_sdpa(inputs, query, sizes) if stored == query.dtype and not window else None,
        # One context for the whole GPU, uncut, is there to show what cutting it gains.
        has_aim=stored == query.dtype and window is None and (batch > 1 or num_splits > 1),
    )


def prefill_case(
    sizes: HeadSizes,
    *,
    chunk: int,
    context: int,
    stored: torch.dtype,
    device: torch.device,
    tiles: PrefillTiles | None = None,
) -> KernelCase:
    """The last `chunk` tokens of one context of `context`."""
    inputs = paged_inputs(sizes, batch=1, context=context, stored=stored, device=device)
    generator = torch.Generator(device).manual_seed(SEED)
    query = noise((chunk, sizes.num_heads, sizes.head_dim), generator, device)
    starts = torch.tensor([0, chunk], dtype=torch.int32, device=device)
    over = partial(
        paged_prefill,
        query=query,
        query_starts=starts,
        context_lens=inputs.context_lens,
        max_chunk=chunk,
        tiles=tiles,
        **inputs.caches,
    )
    seen = chunk * (context - chunk) + chunk * (chunk + 1) // 2
    return KernelCase(
        name=f"prefill {chunk} of {context} {_short(stored)}",
        run=lambda: over(block_tables=inputs.scattered),
        difference=lambda: _difference(
            over(block_tables=inputs.scattered),
            reference.paged_prefill(
                query=query,
                block_tables=inputs.scattered,
                query_starts=starts,
                context_lens=inputs.context_lens,
                **inputs.caches,
            ),
        ),
        tolerance=TOLERANCE,
        num_bytes=inputs.bytes_read + 2 * query.nbytes,
        num_flops=4 * seen * sizes.num_heads * sizes.head_dim,
        in_order=lambda: over(block_tables=inputs.in_order),
        # With tokens before the chunk torch would need a mask, which takes its fast path away.
        torch_run=_sdpa_causal(inputs, query, sizes)
        if stored == query.dtype and chunk == context
        else None,
    )


def _decode_reference(inputs: PagedInputs, query: Tensor, window: int | None) -> Tensor:
    return reference.paged_decode(
        query=query,
        block_tables=inputs.scattered,
        context_lens=inputs.context_lens,
        window=window,
        **inputs.caches,
    )


def _difference(got: Tensor, expected: Tensor) -> float:
    return float((got.float() - expected.float()).abs().max())


def _sdpa(inputs: PagedInputs, query: Tensor, sizes: HeadSizes) -> Callable[[], Tensor]:
    keys, values = _side_by_side(inputs, sizes)
    return partial(
        functional.scaled_dot_product_attention, query[:, :, None], keys, values, enable_gqa=True
    )


def _sdpa_causal(inputs: PagedInputs, query: Tensor, sizes: HeadSizes) -> Callable[[], Tensor]:
    keys, values = _side_by_side(inputs, sizes)
    return partial(
        functional.scaled_dot_product_attention,
        query.transpose(0, 1)[None],
        keys,
        values,
        is_causal=True,
        enable_gqa=True,
    )


def _side_by_side(inputs: PagedInputs, sizes: HeadSizes) -> tuple[Tensor, Tensor]:
    """Keys and values [batch, num_kv_heads, context, head_dim], each head contiguous."""
    batch = len(inputs.context_lens)
    keys, values = (
        cache.view(batch, -1, *sizes.vectors).transpose(1, 2).contiguous()
        for cache in (inputs.caches["key_cache"], inputs.caches["value_cache"])
    )
    return keys, values


def _decode_name(
    batch: int, context: int, stored: torch.dtype, num_splits: int, window: int | None
) -> str:
    parts = "" if num_splits == 1 else f" in {num_splits} parts"
    seen = "" if window is None else f" window {window}"
    return f"decode {batch} x {context} {_short(stored)}{parts}{seen}"


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
