"""A Llama-family decoder in torch over the paged KV cache.

One forward pass takes a step's mixed batch (decodes and prefill chunks as rows of one matrix).
Projections are fused (query, key and value; gate and up), and residuals are added inside the
multiplication; how it is done is up to `engine.model.projection`.

Source: Touvron et al. 2023 (arXiv:2302.13971); rotary embedding in its interleaved form, Su et al.
2021 (arXiv:2104.09864) section 3.4.2, one complex product for all query and key heads.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from engine.model.attention import AttentionBackend, PagedAttention
from engine.model.kv_tensors import KvShape, KvTensors
from engine.model.layer_windows import KvGroup, LayerWindows, kv_groups
from engine.model.projection import Projection, output_head, projection
from engine.model.rotary import RopeScaling, rotary_table, rotate_in_place
from engine.model.step_batch import StepBatch


@dataclass(frozen=True, slots=True)
class LlamaConfig:
    """The sizes of a Llama-family model.

    Attributes:
        sliding_window: How many positions a token attends to, its own included; None for all.
        full_layers: Indices of the layers that attend to all positions despite `sliding_window`.
        rope_scaling: How the rotary frequencies are changed for longer contexts.
    """

    name: str
    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    max_context: int
    rope_base: float
    norm_epsilon: float
    sliding_window: int | None = None
    full_layers: frozenset[int] = frozenset()
    rope_scaling: RopeScaling | None = None

    @property
    def windows(self) -> LayerWindows:
        """What each layer attends to."""
        if self.full_layers:
            return LayerWindows(of_some_layers=self.sliding_window)
        return LayerWindows(of_all_layers=self.sliding_window)

    @property
    def kv_groups(self) -> tuple[KvGroup, ...]:
        """Which layers lie together in a block; a window as long as the context is none."""
        window = self.sliding_window
        if window is not None and window >= self.max_context:
            window = None
        return kv_groups(self.num_layers, full_layers=self.full_layers, window=window)

    def cache_shape(self, *, num_blocks: int, block_size: int) -> KvShape:
        """Return the shape of a KV cache for this model; its layers are those of one group."""
        size = len(self.kv_groups[0].layers)
        return KvShape(size, num_blocks, block_size, self.num_kv_heads, self.head_dim)


@dataclass(frozen=True, slots=True)
class LlamaLayer:
    """One layer's weights; matrices are [in, out]. A bias is [out], None where there is none."""

    attention_norm: Tensor
    query_key_value: Tensor
    attention_output: Tensor
    mlp_norm: Tensor
    gate_up: Tensor
    down: Tensor
    query_key_value_bias: Tensor | None = None


@dataclass(frozen=True, slots=True)
class LlamaWeights:
    """A model's weights. embedding and output: [vocab_size, hidden_size], the same when tied."""

    embedding: Tensor
    layers: list[LlamaLayer]
    norm: Tensor
    output: Tensor


class Workspace:
    """Activations that live from step to step; views of the first `num_tokens` rows."""

    def __init__(self, config: LlamaConfig, like: Tensor, num_tokens: int) -> None:
        self.num_tokens = num_tokens
        self.hidden = like.new_empty(num_tokens, config.hidden_size)
        self.attended = like.new_empty(num_tokens, config.num_heads * config.head_dim)
        self.activated = like.new_empty(num_tokens, config.intermediate_size)


@dataclass(frozen=True, slots=True)
class _Layer:
    """One layer, ready to run."""

    attention_norm: Tensor
    query_key_value: Projection
    query_key_value_bias: Tensor | None
    attention_output: Projection
    mlp_norm: Tensor
    gate_up: Projection
    down: Projection

    @classmethod
    def of(cls, weights: LlamaLayer) -> "_Layer":
        return cls(
            attention_norm=weights.attention_norm,
            query_key_value=projection(weights.query_key_value),
            query_key_value_bias=weights.query_key_value_bias,
            attention_output=projection(weights.attention_output),
            mlp_norm=weights.mlp_norm,
            gate_up=projection(weights.gate_up),
            down=projection(weights.down),
        )


class LlamaModel:
    """A Llama-family model and the cache it runs over. One thread at a time."""

    def __init__(
        self,
        config: LlamaConfig,
        weights: LlamaWeights,
        kv: KvTensors,
        *,
        attention: Sequence[AttentionBackend] = (),
    ) -> None:
        """Take what belongs together.

        Args:
            config: Sizes.
            weights: What the sizes are of.
            kv: The cache.
            attention: How each KV group attends, as each prepares for tables of its own; by
                default in plain torch.
        """
        self.config = config
        # Not the weights themselves: what was packed can be let go once it is loaded.
        self._embedding, self._norm = weights.embedding, weights.norm
        self._layers = [_Layer.of(layer) for layer in weights.layers]
        groups = config.kv_groups
        self._attention = attention or [
            PagedAttention(kv, num_heads=config.num_heads) for _ in groups
        ]
        # Where each layer's keys and values lie: in which group, and where in its blocks.
        self._places = {
            layer: (number, place)
            for number, group in enumerate(groups)
            for place, layer in enumerate(group.layers)
        }
        self._rotation = rotary_table(
            config.head_dim, config.max_context, base=config.rope_base, scaling=config.rope_scaling
        ).to(weights.embedding.device)
        self._workspace = Workspace(config, weights.embedding, 1)
        self._project_to_vocabulary = output_head(weights.output)

    @torch.inference_mode()
    def forward(self, batch: StepBatch) -> Tensor:
        """Run a step: store the keys and values of all rows, and score the sampled ones.

        Returns:
            Logits, [len(batch.sampled), vocab_size] fp32.
        """
        space = self._reserve(batch)
        num = batch.num_tokens
        hidden = torch.index_select(self._embedding, 0, batch.token_ids, out=space.hidden[:num])
        rotation = self._rotation.index_select(0, batch.positions)[:, None]
        for index, layer in enumerate(self._layers):
            attended = self._attend(index, layer, hidden, rotation, batch)
            if index == self.config.num_layers - 1:
                # Only sampled rows are needed from here on.
                hidden = hidden.index_select(0, batch.sampled_rows)
                attended = attended.index_select(0, batch.sampled_rows)
            if len(hidden):
                hidden = layer.attention_output.add_to(hidden, attended)
                hidden = self._add_mlp(layer, hidden)
        normed = functional.rms_norm(
            hidden, (self.config.hidden_size,), self._norm, self.config.norm_epsilon
        )
        return self._project_to_vocabulary(normed).float()

    def _reserve(self, batch: StepBatch) -> Workspace:
        for attention, seen in zip(self._attention, (batch, *batch.others), strict=True):
            attention.prepare(seen)
        if batch.num_tokens > self._workspace.num_tokens:
            self._workspace = Workspace(self.config, self._embedding, batch.num_tokens)
        return self._workspace

    def _attend(
        self, index: int, layer: _Layer, hidden: Tensor, rotation: Tensor, batch: StepBatch
    ) -> Tensor:
        """Project, rotate, store and attend; [num_tokens, num_heads * head_dim]."""
        config, space, num = self.config, self._workspace, len(hidden)
        normed = functional.rms_norm(
            hidden, (config.hidden_size,), layer.attention_norm, config.norm_epsilon
        )
        projected = layer.query_key_value(normed)
        if layer.query_key_value_bias is not None:
            projected.add_(layer.query_key_value_bias)
        heads = projected.view(num, -1, config.head_dim)
        num_rotated = config.num_heads + config.num_kv_heads
        rotate_in_place(heads[:, :num_rotated], rotation)
        query = heads[:, : config.num_heads]
        key, value = heads[:, config.num_heads : num_rotated], heads[:, num_rotated:]
        group, place = self._places[index]
        attention, seen = self._attention[group], batch.others[group - 1] if group else batch
        attention.store(place, key=key, value=value, slots=seen.slots)
        attended = space.attended[:num]
        attention(place, seen, query=query, key=key, value=value, out=attended)
        return attended

    def _add_mlp(self, layer: _Layer, hidden: Tensor) -> Tensor:
        """Return `hidden` plus what the layer's gated MLP makes of it."""
        config, space, num = self.config, self._workspace, len(hidden)
        normed = functional.rms_norm(
            hidden, (config.hidden_size,), layer.mlp_norm, config.norm_epsilon
        )
        gate, up = layer.gate_up(normed).chunk(2, dim=1)
        activated = torch.mul(functional.silu(gate), up, out=space.activated[:num])
        return layer.down.add_to(hidden, activated)
