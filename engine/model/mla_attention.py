"""Attention over latent vectors, paged: absorbed for decodes, expanded for prefill.

Absorbed: a head's query is carried into the latent space, where every head sees the same key (the
whole vector) and the same value (its first part); the result is carried out again. No key or value
of any head is ever made, and a decode reads `width` numbers per token for all heads together.
Expanded: each head's keys and values are made from the gathered latent vectors; for many queries
the smaller dot products outweigh making them.

Source: DeepSeek-AI 2024 (arXiv:2405.04434), section 2.1.2 ("absorbed" projections).
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from engine.model.attention.torch_attention import mask_as
from engine.model.mla_cache import LatentCache
from engine.model.step_batch import DecodeGroup, PrefillChunk, StepBatch


@dataclass(frozen=True, slots=True)
class LatentHeads:
    """How each head makes its key and value from the latent vector.

    Attributes:
        key: [num_heads, nope_dim, latent_rank].
        value: [num_heads, latent_rank, value_dim].
    """

    key: Tensor
    value: Tensor


class LatentAttention:
    """Attention of one step's batch; owns the buffer that gathered blocks go to."""

    def __init__(self, cache: LatentCache, *, query_dim: int) -> None:
        self._cache = cache
        self._rank = cache.shape.latent_rank
        self._block_elements = cache.shape.block_size * cache.shape.width
        self._scale = float(query_dim) ** -0.5
        self._gathered = cache.latents[0].new_empty(0, dtype=cache.compute_dtype)

    def prepare(self, batch: StepBatch) -> None:
        """Grow the gather buffer to what the batch's largest group or chunk needs."""
        tables = [group.block_ids for group in batch.groups]
        tables += [chunk.block_ids for chunk in batch.chunks if chunk.block_ids is not None]
        needed = max((len(table) for table in tables), default=0) * self._block_elements
        if needed > len(self._gathered):
            self._gathered = self._gathered.new_empty(needed + needed // 4)

    def __call__(
        self,
        layer: int,
        batch: StepBatch,
        heads: LatentHeads,
        *,
        query: Tensor,
        latents: Tensor,
    ) -> Tensor:
        """Attend for every row of the batch; the rows' own latents must be stored already.

        Args:
            layer: Index of the layer.
            batch: What each row is.
            heads: The layer's projections of the latent vector.
            query: [num_tokens, num_heads, nope_dim + rope_dim], its last part rotated.
            latents: [num_tokens, width], the rows' own.

        Returns:
            [num_tokens, num_heads, value_dim].
        """
        out = query.new_empty(*query.shape[:2], heads.value.shape[2])
        for group in batch.groups:
            seen = self._cache.gather(layer, group.block_ids, out=self._gathered)
            rows = slice(group.start, group.end)
            out[rows] = self._absorbed(query[rows], seen, group, heads)
        for chunk in batch.chunks:
            rows = slice(chunk.start, chunk.end)
            seen = latents[rows]
            if chunk.block_ids is not None:
                seen = self._cache.gather(layer, chunk.block_ids, out=self._gathered)
            out[rows] = self._expanded(query[rows], seen, chunk, heads)
        return out

    def _absorbed(
        self, query: Tensor, latents: Tensor, group: DecodeGroup, heads: LatentHeads
    ) -> Tensor:
        """One query per sequence; all heads along the query axis of one shared key head."""
        num, nope = len(query), heads.key.shape[1]
        carried_in = torch.bmm(query[..., :nope].transpose(0, 1), heads.key).transpose(0, 1)
        keys = latents.view(num, 1, -1, latents.shape[1])
        attended = functional.scaled_dot_product_attention(
            torch.cat((carried_in, query[..., nope:]), dim=2)[:, None],
            keys,
            keys[..., : self._rank],
            attn_mask=mask_as(query, group.mask),
            scale=self._scale,
        )
        return torch.bmm(attended[:, 0].transpose(0, 1), heads.value).transpose(0, 1)

    def _expanded(
        self, query: Tensor, latents: Tensor, chunk: PrefillChunk, heads: LatentHeads
    ) -> Tensor:
        """Many queries of one sequence against keys and values made for each head."""
        num_heads = len(heads.key)
        compressed, rotated = latents[:, : self._rank], latents[:, self._rank :]
        keys = torch.cat(
            (
                torch.matmul(compressed, heads.key.transpose(1, 2)),
                rotated.expand(num_heads, *rotated.shape),
            ),
            dim=2,
        )
        attended = functional.scaled_dot_product_attention(
            query.transpose(0, 1),
            keys,
            torch.matmul(compressed, heads.value),
            attn_mask=mask_as(query, chunk.mask),
            is_causal=chunk.mask is None,
            scale=self._scale,
        )
        return attended.transpose(0, 1)
