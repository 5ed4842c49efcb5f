"""One layer's paged cache, by the names that every launcher gives its tensors."""

from typing import TypedDict

from torch import Tensor


class CacheTensors(TypedDict):
    """Keyword arguments of the launchers.

    Attributes:
        key_cache: [num_blocks, block_size, num_kv_heads, head_dim].
        value_cache: Same shape and dtype.
        key_scales: [num_blocks, block_size, num_kv_heads] fp32 for int8; None for other types.
        value_scales: Same as `key_scales`.
    """

    key_cache: Tensor
    value_cache: Tensor
    key_scales: Tensor | None
    value_scales: Tensor | None


def tensors_of(caches: CacheTensors) -> list[Tensor]:
    """Return the tensors that there are: two, or four with scales."""
    found = (
        caches["key_cache"],
        caches["value_cache"],
        caches["key_scales"],
        caches["value_scales"],
    )
    return [tensor for tensor in found if tensor is not None]
