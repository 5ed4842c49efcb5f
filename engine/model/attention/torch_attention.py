"""Attention over the paged cache in plain torch: one gather per layer and group, then one SDPA.

The group of query heads that share a key head is laid along the query axis (decode) or a
broadcast axis (prefill), so that keys and values are never repeated in memory.

Source: Kwon et al. 2023 (arXiv:2309.06180) for paging;
Ainslie et al. 2023 (arXiv:2305.13245) for grouped queries.
"""

from typing import Final

from torch import Tensor
from torch.nn import functional

from engine.model.kv_tensors import KvTensors
from engine.model.step_batch import DecodeGroup, PrefillChunk, StepBatch


class PagedAttention:
    """Attention of one step's batch; owns the buffers that gathered blocks go to."""

    name: Final = "torch"

    def __init__(self, kv: KvTensors, *, num_heads: int) -> None:
        self._kv = kv
        self._num_heads = num_heads
        self._num_kv_heads = kv.shape.num_kv_heads
        self._head_dim = kv.shape.head_dim
        self._gathered_keys = kv.keys[0].new_empty(0, dtype=kv.compute_dtype)
        self._gathered_values = kv.keys[0].new_empty(0, dtype=kv.compute_dtype)

    def prepare(self, batch: StepBatch) -> None:
        """Grow the gather buffers to what the batch's largest group or chunk needs."""
        tables = [group.block_ids for group in batch.groups]
        tables += [chunk.block_ids for chunk in batch.chunks if chunk.block_ids is not None]
        needed = max((len(table) for table in tables), default=0) * self._kv.elements_per_block
        if needed > len(self._gathered_keys):
            self._gathered_keys = self._gathered_keys.new_empty(needed + needed // 4)
            self._gathered_values = self._gathered_values.new_empty(needed + needed // 4)

    def store(self, layer: int, *, key: Tensor, value: Tensor, slots: Tensor) -> None:
        """Write each row's key and value into its slot."""
        self._kv.store(layer, key=key, value=value, slots=slots)

    def __call__(
        self,
        layer: int,
        batch: StepBatch,
        *,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        out: Tensor,
    ) -> None:
        """Attend for every row of the batch; the rows' own keys must be stored already.

        Args:
            layer: Index of the layer.
            batch: What each row is.
            query: [num_tokens, num_heads, head_dim].
            key: [num_tokens, num_kv_heads, head_dim], the rows' own keys.
            value: Same shape as `key`.
            out: [num_tokens, num_heads * head_dim]; changed in place.
        """
        for group in batch.groups:
            self._decode(layer, group, query, out)
        for chunk in batch.chunks:
            rows = slice(chunk.start, chunk.end)
            keys, values = key[rows], value[rows]
            if chunk.block_ids is not None:
                keys, values = self._gather(layer, chunk.block_ids)
            self._prefill(query[rows], keys, values, chunk, out[rows])

    def _gather(self, layer: int, block_ids: Tensor) -> tuple[Tensor, Tensor]:
        return self._kv.gather(
            layer, block_ids, key_out=self._gathered_keys, value_out=self._gathered_values
        )

    def _decode(self, layer: int, group: DecodeGroup, query: Tensor, out: Tensor) -> None:
        num, heads, dim = group.end - group.start, self._num_kv_heads, self._head_dim
        keys, values = self._gather(layer, group.block_ids)
        attended = functional.scaled_dot_product_attention(
            query[group.start : group.end].view(num, heads, -1, dim),
            keys.view(num, -1, heads, dim).transpose(1, 2),
            values.view(num, -1, heads, dim).transpose(1, 2),
            attn_mask=mask_as(query, group.mask),
        )
        out[group.start : group.end].view(num, heads, -1, dim).copy_(attended)

    def _prefill(
        self, query: Tensor, key: Tensor, value: Tensor, chunk: PrefillChunk, out: Tensor
    ) -> None:
        num, heads, dim = len(query), self._num_kv_heads, self._head_dim
        shared = self._num_heads // heads
        attended = functional.scaled_dot_product_attention(
            query.view(num, heads, shared, dim).permute(1, 2, 0, 3),
            key.transpose(0, 1)[:, None].expand(heads, shared, len(key), dim),
            value.transpose(0, 1)[:, None].expand(heads, shared, len(key), dim),
            attn_mask=mask_as(query, chunk.mask),
            is_causal=chunk.mask is None,
        )
        out.view(num, heads, shared, dim).copy_(attended.permute(2, 0, 1, 3))


def mask_as(query: Tensor, mask: Tensor | None) -> Tensor | None:
    """Return the mask in the query's type, which is the only one that every CUDA kernel takes."""
    return None if mask is None else mask.to(query.dtype)
