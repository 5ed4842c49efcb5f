"""The memory behind the block pool: a key and a value tensor per layer, addressed by block id."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class KvShape:
    """What decides the size of a paged KV cache."""

    num_layers: int
    num_blocks: int
    block_size: int
    num_kv_heads: int
    head_dim: int

    def bytes_per_token(self, dtype: torch.dtype) -> int:
        """Return the bytes that one token's keys and values take over all layers."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * dtype.itemsize


class KvTensors:
    """Keys and values of every layer, [num_blocks, block_size, num_kv_heads, head_dim] each.

    Zeros at first, and only ever finite afterwards: attention masks out what lies beyond a
    sequence's context, and a masked NaN would still poison the sum.
    """

    def __init__(
        self,
        shape: KvShape,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        self.shape = shape
        self.dtype = dtype
        size = (shape.num_blocks, shape.block_size, shape.num_kv_heads, shape.head_dim)
        self.keys = [torch.zeros(size, dtype=dtype, device=device) for _ in range(shape.num_layers)]
        self.values = [torch.zeros_like(keys) for keys in self.keys]
        # The same memory, seen as one row per slot and as one row per block.
        row = shape.num_kv_heads * shape.head_dim
        self._slot_rows = [
            (keys.view(-1, row), values.view(-1, row))
            for keys, values in zip(self.keys, self.values, strict=True)
        ]
        self._block_rows = [
            (keys.view(shape.num_blocks, -1), values.view(shape.num_blocks, -1))
            for keys, values in zip(self.keys, self.values, strict=True)
        ]

    def store(self, layer: int, *, key: Tensor, value: Tensor, slots: Tensor) -> None:
        """Write each token's key and value into its slot.

        Args:
            layer: Index of the layer.
            key: [num_tokens, num_kv_heads, head_dim].
            value: Same shape as `key`.
            slots: [num_tokens] int64, block id x block size + offset; every one a real slot.
        """
        key_rows, value_rows = self._slot_rows[layer]
        key_rows.index_copy_(0, slots, key.reshape(len(key), -1))
        value_rows.index_copy_(0, slots, value.reshape(len(value), -1))

    def gather(
        self, layer: int, block_ids: Tensor, *, key_out: Tensor, value_out: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Copy whole blocks, in the order named, into two flat buffers.

        Args:
            layer: Index of the layer.
            block_ids: [n] int64.
            key_out: Flat, at least n x block elements; changed in place.
            value_out: Same as `key_out`.

        Returns:
            Keys and values, [n x block_size, num_kv_heads, head_dim], views of the buffers.
        """
        shape = self.shape
        key_rows, value_rows = self._block_rows[layer]
        num_elements = len(block_ids) * key_rows.shape[1]
        keys = key_out[:num_elements].view(-1, key_rows.shape[1])
        values = value_out[:num_elements].view(-1, key_rows.shape[1])
        torch.index_select(key_rows, 0, block_ids, out=keys)
        torch.index_select(value_rows, 0, block_ids, out=values)
        size = (-1, shape.num_kv_heads, shape.head_dim)
        return keys.view(size), values.view(size)

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy whole blocks [source, target] in every layer, as if all at once."""
        if not pairs:
            return
        device = self.keys[0].device
        sources = torch.tensor([source for source, _ in pairs], device=device)
        targets = torch.tensor([target for _, target in pairs], device=device)
        for key_rows, value_rows in self._block_rows:
            key_rows.index_copy_(0, targets, key_rows.index_select(0, sources))
            value_rows.index_copy_(0, targets, value_rows.index_select(0, sources))

    @property
    def elements_per_block(self) -> int:
        """Elements of one block's keys in one layer."""
        return self.shape.block_size * self.shape.num_kv_heads * self.shape.head_dim
