"""What the slot store computes, in plain torch: rounding, scaling and placing."""

from typing import NamedTuple

import torch
from torch import Tensor

from kernels.shapes import (
    FP8,
    require_cache_pair,
    require_floats,
    require_integers,
    require_like,
    require_shape,
)

INT8_LARGEST = 127.0


class Codes(NamedTuple):
    """Quantised vectors: `codes` [..., head_dim] int8 and `scales` [...] fp32."""

    codes: Tensor
    scales: Tensor


def quantise(vectors: Tensor) -> Codes:
    """Code each vector as int8 over its largest magnitude / 127, rounded half to even.

    Args:
        vectors: [..., head_dim] in any float type.
    """
    numbers = vectors.float()
    scales = numbers.abs().amax(-1) / INT8_LARGEST
    # A vector of zeros has the scale 0, and its codes are 0 whatever it is divided by.
    divisors = torch.where(scales > 0, scales, 1.0)[..., None]
    codes = (numbers / divisors).round().clamp(-INT8_LARGEST, INT8_LARGEST)
    return Codes(codes.to(torch.int8), scales)


def dequantise(codes: Tensor, scales: Tensor | None) -> Tensor:
    """Return the fp32 numbers that cached ones stand for."""
    numbers = codes.float()
    return numbers if scales is None else numbers * scales[..., None]


def largest_finite(stored: torch.dtype) -> float | None:
    """Return the bound that a cast saturates at; None for types with the range of fp32."""
    if stored in (FP8, torch.float16):
        return torch.finfo(stored).max
    return None


def cast(vectors: Tensor, stored: torch.dtype) -> Tensor:
    """Round to the nearest number of a type, saturating where it has no infinity to go to."""
    bound = largest_finite(stored)
    if bound is None or vectors.dtype == stored:
        return vectors.to(stored)
    return vectors.float().clamp(-bound, bound).to(stored)


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
        key: [num_tokens, num_kv_heads, head_dim], fp32, fp16 or bf16.
        value: Same shape and dtype as `key`.
        key_cache: [num_blocks, block_size, num_kv_heads, head_dim]; changed in place. A float
            type is rounded to, fp16 and fp8 saturating; int8 is scaled per token and head.
        value_cache: Same shape and dtype as `key_cache`; changed in place.
        slots: [num_tokens] int64; -1 marks padding and is skipped.
        key_scales: [num_blocks, block_size, num_kv_heads] fp32, for int8 only; changed in place.
        value_scales: Same as `key_scales`.

    Raises:
        ShapeError: A shape or dtype differs from the above.
    """
    check_store(key, value, key_cache, value_cache, slots)
    require_cache_pair(key_cache, value_cache, key_scales, value_scales)
    for vectors, cache, scales in (
        (key, key_cache, key_scales),
        (value, value_cache, value_scales),
    ):
        _place(vectors, cache, scales, slots)


def check_store(
    key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slots: Tensor
) -> None:
    """Raise ShapeError unless the vectors and slots fit the caches."""
    require_shape("key", key, (len(key), *key_cache.shape[2:]))
    require_floats("key", key, key_cache)
    require_shape("value", value, tuple(key.shape))
    require_like("value", value, key)
    require_shape("slots", slots, (len(key),))
    require_integers("slots", slots, key_cache)


def _place(vectors: Tensor, cache: Tensor, scales: Tensor | None, slots: Tensor) -> None:
    kept = slots >= 0
    block_size = cache.shape[1]
    at = (slots[kept] // block_size, slots[kept] % block_size)
    if scales is not None:
        cache[at], scales[at] = quantise(vectors[kept])
        return
    rounded = cast(vectors[kept], cache.dtype)
    if cache.dtype == FP8:
        # Torch indexes bytes, not fp8, on some devices.
        cache.view(torch.uint8)[at] = rounded.view(torch.uint8)
    else:
        cache[at] = rounded
