"""The paged cache of multi-head latent attention: one vector per token and layer, for all heads.

A slot holds the compressed vector that keys and values are both made from, and after it the one
rotated key that all heads share: `latent_rank + rope_dim` numbers, 512 + 64 in DeepSeek-V2.

Source: DeepSeek-AI 2024 (arXiv:2405.04434), section 2.1.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.model.kv_formats import KvFormat
from engine.model.paged_cache import PagedCache
from engine.model.paged_vectors import paged_vectors


@dataclass(frozen=True, slots=True)
class LatentShape:
    """What decides the size of a paged latent cache."""

    num_layers: int
    num_blocks: int
    block_size: int
    latent_rank: int
    rope_dim: int

    @property
    def width(self) -> int:
        """Numbers of one token in one layer."""
        return self.latent_rank + self.rope_dim

    def bytes_per_token(self, kv_format: KvFormat) -> int:
        """Return the bytes of one token's latent vectors over all layers."""
        return self.num_layers * kv_format.bytes_per_vector(self.width)


class LatentCache(PagedCache):
    """The latent vectors of every layer, [num_blocks, block_size, latent_rank + rope_dim] each.

    Zeros at first, and only ever finite afterwards, as in `KvTensors`.
    """

    def __init__(
        self,
        shape: LatentShape,
        *,
        dtype: torch.dtype = torch.float32,
        kv_format: KvFormat | None = None,
        num_host_blocks: int = 0,
        device: torch.device | str = "cpu",
    ) -> None:
        """Allocate everything; the arguments are those of `KvTensors`."""
        super().__init__(dtype=dtype, kv_format=kv_format)
        self.shape = shape
        size = (shape.num_blocks, shape.block_size, shape.width)
        self.latents = [
            torch.zeros(size, dtype=self.dtype, device=device) for _ in range(shape.num_layers)
        ]
        # One head as wide as the slot.
        self._layers = [
            paged_vectors(latents.unsqueeze(2), self.format, dtype) for latents in self.latents
        ]
        self._hold(self._layers, num_host_blocks=num_host_blocks)

    def store(self, layer: int, *, latents: Tensor, slots: Tensor) -> None:
        """Write each token's vector, [num_tokens, width], to its slot, [num_tokens] int64."""
        self._layers[layer].store(latents.unsqueeze(1), slots)

    def gather(self, layer: int, block_ids: Tensor, *, out: Tensor) -> Tensor:
        """Copy whole blocks, in the order named, into the flat `out` of `compute_dtype`.

        Returns:
            [len(block_ids) * block_size, width], a view of `out`.
        """
        return self._layers[layer].gather(block_ids, out).squeeze(1)
