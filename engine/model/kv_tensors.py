"""The memory behind the block pool: a key and a value tensor per layer, addressed by block id."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.model.kv_formats import KvFormat
from engine.model.paged_cache import PagedCache
from engine.model.paged_vectors import CodedVectors, PagedVectors, paged_vectors


@dataclass(frozen=True, slots=True)
class KvShape:
    """What decides the size of a paged KV cache."""

    num_layers: int
    num_blocks: int
    block_size: int
    num_kv_heads: int
    head_dim: int

    def bytes_per_token(self, kv_format: KvFormat) -> int:
        """Return the bytes that one token's keys and values take over all layers."""
        vectors = 2 * self.num_layers * self.num_kv_heads
        return vectors * kv_format.bytes_per_vector(self.head_dim)


class KvTensors(PagedCache):
    """Keys and values of every layer, [num_blocks, block_size, num_kv_heads, head_dim] each.

    Zeros at first, and only ever finite afterwards: attention masks out what lies beyond a
    sequence's context, and a masked NaN would still poison the sum.

    Attributes:
        key_scales: [num_blocks, block_size, num_kv_heads] fp32 for each layer; empty for formats
            that have no scales. `value_scales` alike.
    """

    def __init__(
        self,
        shape: KvShape,
        *,
        dtype: torch.dtype = torch.float32,
        kv_format: KvFormat | None = None,
        num_host_blocks: int = 0,
        device: torch.device | str = "cpu",
    ) -> None:
        """Allocate everything, on the device and in the host's memory.

        Args:
            shape: Sizes.
            dtype: What the model computes in.
            kv_format: How the cache is kept; by default in `dtype`, as it is.
            num_host_blocks: Blocks that can be swapped out at one time.
            device: Where the cache lies.
        """
        super().__init__(dtype=dtype, kv_format=kv_format)
        self.shape = shape
        size = (shape.num_blocks, shape.block_size, shape.num_kv_heads, shape.head_dim)
        layers = range(shape.num_layers)
        self.keys = [torch.zeros(size, dtype=self.dtype, device=device) for _ in layers]
        self.values = [torch.zeros_like(keys) for keys in self.keys]
        self._keys = [paged_vectors(keys, self.format, dtype) for keys in self.keys]
        self._values = [paged_vectors(values, self.format, dtype) for values in self.values]
        self.key_scales = _scales_of(self._keys)
        self.value_scales = _scales_of(self._values)
        self._hold([*self._keys, *self._values], num_host_blocks=num_host_blocks)

    def store(self, layer: int, *, key: Tensor, value: Tensor, slots: Tensor) -> None:
        """Write each token's key and value into its slot.

        Args:
            layer: Index of the layer.
            key: [num_tokens, num_kv_heads, head_dim].
            value: Same shape as `key`.
            slots: [num_tokens] int64, block id x block size + offset; every one a real slot.
        """
        self._keys[layer].store(key, slots)
        self._values[layer].store(value, slots)

    def gather(
        self, layer: int, block_ids: Tensor, *, key_out: Tensor, value_out: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Copy whole blocks, in the order named, into two flat buffers.

        Args:
            layer: Index of the layer.
            block_ids: [n] int64.
            key_out: Flat, `compute_dtype`, at least n x block elements; changed in place.
            value_out: Same as `key_out`.

        Returns:
            Keys and values, [n x block_size, num_kv_heads, head_dim], views of the buffers.
        """
        return (
            self._keys[layer].gather(block_ids, key_out),
            self._values[layer].gather(block_ids, value_out),
        )

    @property
    def elements_per_block(self) -> int:
        """Elements of one block's keys in one layer."""
        return self.shape.block_size * self.shape.num_kv_heads * self.shape.head_dim


def _scales_of(layers: Sequence[PagedVectors]) -> list[Tensor]:
    return [
        vectors.scales
        for vectors in layers
        if isinstance(vectors, CodedVectors) and vectors.scales is not None
    ]
