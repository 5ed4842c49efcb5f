"""Checks that every launcher makes before a pointer reaches a kernel."""

import torch
from torch import Tensor

from kernels.errors import ShapeError, UnavailableError

# The first compute capability that converts to and from fp8 e4m3.
FP8_CAPABILITY = (8, 9)
FLOATS = (torch.float32, torch.float16, torch.bfloat16)
FP8 = getattr(torch, "float8_e4m3fn", None)


def require_shape(name: str, tensor: Tensor, shape: tuple[int, ...]) -> None:
    """Raise ShapeError unless the tensor has exactly this shape."""
    if tuple(tensor.shape) != shape:
        raise ShapeError(f"{name} is {list(tensor.shape)}; expected {list(shape)}")


def require_like(name: str, tensor: Tensor, like: Tensor) -> None:
    """Raise ShapeError unless dtype and device are those of `like`."""
    if tensor.dtype != like.dtype or tensor.device != like.device:
        raise ShapeError(
            f"{name} is {tensor.dtype} on {tensor.device}; expected {like.dtype} on {like.device}"
        )


def require_floats(name: str, tensor: Tensor, like: Tensor) -> None:
    """Raise ShapeError unless the tensor is fp32, fp16 or bf16 on the device of `like`."""
    if tensor.dtype not in FLOATS or tensor.device != like.device:
        raise ShapeError(
            f"{name} is {tensor.dtype} on {tensor.device}; expected fp32, fp16 or bf16 on "
            f"{like.device}"
        )


def require_integers(name: str, tensor: Tensor, like: Tensor) -> None:
    """Raise ShapeError unless the tensor holds whole numbers on the device of `like`."""
    if tensor.is_floating_point() or tensor.is_complex() or tensor.device != like.device:
        raise ShapeError(
            f"{name} is {tensor.dtype} on {tensor.device}; expected whole numbers on {like.device}"
        )


def require_dense_rows(name: str, tensor: Tensor) -> None:
    """Raise ShapeError unless the last dimension is contiguous."""
    if tensor.stride(-1) != 1:
        raise ShapeError(f"{name} has stride {tensor.stride(-1)} in its last dimension, not 1")


def require_cache_pair(
    key_cache: Tensor,
    value_cache: Tensor,
    key_scales: Tensor | None = None,
    value_scales: Tensor | None = None,
) -> None:
    """Raise ShapeError unless keys and values are two like caches, with scales exactly for int8."""
    if key_cache.dim() != 4:
        raise ShapeError(
            f"key_cache has {key_cache.dim()} dimensions; expected "
            "[num_blocks, block_size, num_kv_heads, head_dim]"
        )
    require_shape("value_cache", value_cache, tuple(key_cache.shape))
    require_like("value_cache", value_cache, key_cache)
    require_dense_rows("key_cache", key_cache)
    require_dense_rows("value_cache", value_cache)
    if key_cache.dtype not in (*FLOATS, FP8, torch.int8):
        raise ShapeError(f"key_cache is {key_cache.dtype}; expected fp32, fp16, bf16, int8 or fp8")
    require_fp8_support(key_cache)
    for name, scales in (("key_scales", key_scales), ("value_scales", value_scales)):
        _require_scales(name, scales, key_cache)


def require_window(window: int | None) -> None:
    """Raise ShapeError unless the window is None or at least the token itself."""
    if window is not None and window < 1:
        raise ShapeError(f"window is {window}; expected at least 1, or None for no window")


def require_fp8_support(cache: Tensor) -> None:
    """Raise UnavailableError where the cache is fp8 on a GPU that cannot convert it."""
    if cache.dtype != FP8 or not cache.is_cuda:
        return
    capability = torch.cuda.get_device_capability(cache.device)
    if capability < FP8_CAPABILITY:
        raise UnavailableError(
            f"an fp8 cache needs compute capability {FP8_CAPABILITY[0]}.{FP8_CAPABILITY[1]}, and "
            f"this GPU has {capability[0]}.{capability[1]}; int8 takes nearly as little"
        )


def _require_scales(name: str, scales: Tensor | None, cache: Tensor) -> None:
    if (scales is not None) != (cache.dtype == torch.int8):
        needs = "needs one" if scales is None else "takes none"
        raise ShapeError(
            f"{name} is {'absent' if scales is None else 'given'}, but a cache of "
            f"{cache.dtype} {needs}"
        )
    if scales is None:
        return
    require_shape(name, scales, tuple(cache.shape[:3]))
    if scales.dtype != torch.float32 or scales.device != cache.device:
        raise ShapeError(
            f"{name} is {scales.dtype} on {scales.device}; expected fp32 on {cache.device}"
        )
    if not scales.is_contiguous():
        raise ShapeError(f"{name} is not contiguous")
