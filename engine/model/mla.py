"""A decoder with multi-head latent attention in torch, of DeepSeek-V2's shape without experts.

Keys and values of all heads are made from one small vector per token, and only that vector is kept.
Queries may be compressed as well. The feed-forward layers are plain gated ones: the experts of the
published models change no byte of the cache.

Source: DeepSeek-AI 2024 (arXiv:2405.04434), section 2.1 and appendix B.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from engine.model.layer_windows import KvGroup, LayerWindows, kv_groups
from engine.model.mla_attention import LatentAttention, LatentHeads
from engine.model.mla_cache import LatentCache, LatentShape
from engine.model.projection import output_head
from engine.model.rotary import rotary_table, rotate_in_place
from engine.model.step_batch import StepBatch


@dataclass(frozen=True, slots=True)
class MlaConfig:
    """The sizes of a model with latent attention.

    Attributes:
        query_rank: Length of a compressed query; None where queries are not compressed.
        latent_rank: Length of the vector that keys and values are made from.
        nope_dim: Length of a head's key part that is not rotated.
        rope_dim: Length of the rotated key, which all heads share.
        value_dim: Length of a head's value.
    """

    name: str
    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    query_rank: int | None
    latent_rank: int
    nope_dim: int
    rope_dim: int
    value_dim: int
    vocab_size: int
    max_context: int
    rope_base: float
    norm_epsilon: float

    @property
    def windows(self) -> LayerWindows:
        """Every layer attends to all positions."""
        return LayerWindows()

    @property
    def kv_groups(self) -> tuple[KvGroup, ...]:
        """All layers lie together in a block."""
        return kv_groups(self.num_layers, full_layers=(), window=None)

    @property
    def query_dim(self) -> int:
        """Length of a head's query."""
        return self.nope_dim + self.rope_dim

    def cache_shape(self, *, num_blocks: int, block_size: int) -> LatentShape:
        """Return the shape of a latent cache for this model."""
        return LatentShape(self.num_layers, num_blocks, block_size, self.latent_rank, self.rope_dim)


@dataclass(frozen=True, slots=True)
class QueryCompression:
    """Weights that make the compressed query: down [hidden_size, rank], norm [rank]."""

    down: Tensor
    norm: Tensor


@dataclass(frozen=True, slots=True)
class MlaLayer:
    """One layer's weights; matrices are [in, out].

    Attributes:
        query: [query_rank or hidden_size, num_heads * query_dim].
        latent: [hidden_size, latent_rank + rope_dim].
        latent_norm: [latent_rank].
        heads: How each head makes keys and values from the latent vector.
        attention_output: [num_heads * value_dim, hidden_size].
        gate_up: [hidden_size, 2 * intermediate_size]; `down` is [intermediate_size, hidden_size].
    """

    attention_norm: Tensor
    query_compression: QueryCompression | None
    query: Tensor
    latent: Tensor
    latent_norm: Tensor
    heads: LatentHeads
    attention_output: Tensor
    mlp_norm: Tensor
    gate_up: Tensor
    down: Tensor


@dataclass(frozen=True, slots=True)
class MlaWeights:
    """A model's weights. embedding and output: [vocab_size, hidden_size], the same when tied."""

    embedding: Tensor
    layers: list[MlaLayer]
    norm: Tensor
    output: Tensor


class MlaModel:
    """A model with latent attention and the cache it runs over. One thread at a time."""

    def __init__(self, config: MlaConfig, weights: MlaWeights, cache: LatentCache) -> None:
        self.config = config
        self._weights, self._cache = weights, cache
        self._attention = LatentAttention(cache, query_dim=config.query_dim)
        self._rotation = rotary_table(
            config.rope_dim, config.max_context, base=config.rope_base
        ).to(weights.embedding.device)
        self._project_to_vocabulary = output_head(weights.output)

    @torch.inference_mode()
    def forward(self, batch: StepBatch) -> Tensor:
        """Run a step: store the latent vectors of all rows, and score the sampled ones.

        Returns:
            Logits, [len(batch.sampled), vocab_size] fp32.
        """
        weights = self._weights
        self._attention.prepare(batch)
        hidden = weights.embedding.index_select(0, batch.token_ids)
        rotation = self._rotation.index_select(0, batch.positions)[:, None]
        for index, layer in enumerate(weights.layers):
            attended = self._attend(index, layer, hidden, rotation, batch)
            hidden = torch.addmm(hidden, attended, layer.attention_output)
            gate, up = (self._norm(hidden, layer.mlp_norm) @ layer.gate_up).chunk(2, dim=1)
            hidden = torch.addmm(hidden, functional.silu(gate) * up, layer.down)
        sampled = self._norm(hidden.index_select(0, batch.sampled_rows), weights.norm)
        return self._project_to_vocabulary(sampled).float()

    def _attend(
        self, index: int, layer: MlaLayer, hidden: Tensor, rotation: Tensor, batch: StepBatch
    ) -> Tensor:
        """Project, rotate, store and attend; [num_tokens, num_heads * value_dim]."""
        config = self.config
        normed = self._norm(hidden, layer.attention_norm)
        query = self._queries(layer, normed).view(len(hidden), config.num_heads, -1)
        rotate_in_place(query[..., config.nope_dim :], rotation)
        latents = normed @ layer.latent
        rank = config.latent_rank
        latents[:, :rank] = self._norm(latents[:, :rank], layer.latent_norm)
        rotate_in_place(latents[:, None, rank:], rotation)
        self._cache.store(index, latents=latents, slots=batch.slots)
        attended = self._attention(index, batch, layer.heads, query=query, latents=latents)
        return attended.flatten(1)

    def _queries(self, layer: MlaLayer, normed: Tensor) -> Tensor:
        compression = layer.query_compression
        if compression is not None:
            normed = self._norm(normed @ compression.down, compression.norm)
        return normed @ layer.query

    def _norm(self, rows: Tensor, weight: Tensor) -> Tensor:
        return functional.rms_norm(rows, (rows.shape[-1],), weight, self.config.norm_epsilon)
