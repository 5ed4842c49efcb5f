"""Checks that every launcher makes before a pointer reaches a kernel."""

from torch import Tensor

from kernels.errors import ShapeError


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


def require_cache_pair(key_cache: Tensor, value_cache: Tensor) -> None:
    """Raise ShapeError unless keys and values are two like caches of four dimensions."""
    if key_cache.dim() != 4:
        raise ShapeError(
            f"key_cache has {key_cache.dim()} dimensions; expected "
            "[num_blocks, block_size, num_kv_heads, head_dim]"
        )
    require_shape("value_cache", value_cache, tuple(key_cache.shape))
    require_like("value_cache", value_cache, key_cache)
    require_dense_rows("key_cache", key_cache)
    require_dense_rows("value_cache", value_cache)
