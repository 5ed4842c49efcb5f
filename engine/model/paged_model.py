"""What the runner needs of any model over a paged cache, and how one is put together."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from engine.model.attention import AttentionUnavailableError, attention_named
from engine.model.kv_formats import KvFormat, kv_format
from engine.model.kv_tensors import KvTensors
from engine.model.llama import LlamaConfig, LlamaModel, LlamaWeights
from engine.model.mla import MlaConfig, MlaModel, MlaWeights
from engine.model.mla_cache import LatentCache
from engine.model.step_batch import StepBatch


@dataclass(frozen=True, slots=True)
class CacheSettings:
    """How large a cache to allocate, and in what format.

    Attributes:
        kv_format: Name in `KV_FORMATS`; None keeps the numbers in the weights' own type.
        num_host_blocks: Blocks of host memory to swap out to.
        attention: What reads the cache, a name of `attention_named`; None for the best there is.
    """

    num_blocks: int
    block_size: int
    kv_format: str | None = None
    num_host_blocks: int = 0
    attention: str | None = None

    def named_format(self) -> KvFormat | None:
        """Return the format asked for.

        Raises:
            KvFormatError: No format of that name here.
        """
        return None if self.kv_format is None else kv_format(self.kv_format)


class CacheShape(Protocol):
    """The sizes of a cache of any kind."""

    @property
    def num_blocks(self) -> int:
        """Blocks of the device."""
        ...

    @property
    def block_size(self) -> int:
        """Tokens of a block."""
        ...

    def bytes_per_token(self, kv_format: KvFormat) -> int:
        """Return the bytes of one token over all layers."""
        ...


class PagedCache(Protocol):
    """The memory that block ids stand for."""

    @property
    def shape(self) -> CacheShape:
        """Its sizes."""
        ...

    @property
    def format(self) -> KvFormat:
        """How its numbers are kept."""
        ...

    @property
    def rounds(self) -> bool:
        """Whether what is read back differs from what was stored."""
        ...

    @property
    def num_bytes(self) -> int:
        """Bytes allocated on the device."""
        ...

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy whole blocks [source, target], as if all at once."""

    def swap_out(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy whole blocks [device source, host target]."""

    def swap_in(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy whole blocks [host source, device target]."""


class PagedModel(Protocol):
    """A model over a cache. One thread at a time."""

    def forward(self, batch: StepBatch) -> Tensor:
        """Run a step; logits [len(batch.sampled), vocab_size] fp32."""
        ...


@dataclass(frozen=True, slots=True)
class BuiltModel:
    """A model, the cache that it runs over, and the device of both."""

    model: PagedModel
    cache: PagedCache
    device: torch.device


ModelConfig = LlamaConfig | MlaConfig
ModelWeights = LlamaWeights | MlaWeights


def build_model(config: ModelConfig, weights: ModelWeights, settings: CacheSettings) -> BuiltModel:
    """Allocate the cache beside the weights and build the model over it.

    Raises:
        AttentionUnavailableError: The attention asked for cannot run here, or over such a cache.
        KvFormatError: No such format here.
    """
    device = weights.embedding.device
    if isinstance(config, MlaConfig):
        assert isinstance(weights, MlaWeights)
        _require_torch_attention(settings.attention)
        latents = LatentCache(
            config.cache_shape(num_blocks=settings.num_blocks, block_size=settings.block_size),
            dtype=weights.embedding.dtype,
            kv_format=settings.named_format(),
            num_host_blocks=settings.num_host_blocks,
            device=device,
        )
        return BuiltModel(MlaModel(config, weights, latents), latents, device)
    assert isinstance(weights, LlamaWeights)
    kv = KvTensors(
        config.cache_shape(num_blocks=settings.num_blocks, block_size=settings.block_size),
        dtype=weights.embedding.dtype,
        kv_format=settings.named_format(),
        num_host_blocks=settings.num_host_blocks,
        device=device,
    )
    attention = [
        attention_named(settings.attention, kv, num_heads=config.num_heads)
        for _ in config.kv_groups
    ]
    model = LlamaModel(config, weights, kv, attention=attention)
    return BuiltModel(model, kv, device)


def _require_torch_attention(name: str | None) -> None:
    if name not in (None, "auto", "torch"):
        raise AttentionUnavailableError(
            name, "latent attention has a torch path only", instead="use --attention torch"
        )
