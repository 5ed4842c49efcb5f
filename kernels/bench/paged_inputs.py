"""A paged cache of noise with tables that scatter every context, and the same tokens in order."""

from dataclasses import dataclass

import torch
from torch import Tensor

from kernels.cache_tensors import CacheTensors, tensors_of
from kernels.store import store_kv

SEED = 20_261_130


@dataclass(frozen=True, slots=True)
class HeadSizes:
    """The heads of a model and the blocks of its cache; by default those of Llama 3 8B."""

    num_heads: int = 32
    num_kv_heads: int = 8
    head_dim: int = 128
    block_size: int = 16

    @property
    def vectors(self) -> tuple[int, int]:
        """[num_kv_heads, head_dim]."""
        return (self.num_kv_heads, self.head_dim)


@dataclass(frozen=True, slots=True)
class PagedInputs:
    """A cache with the contexts of a batch, equally long.

    Attributes:
        caches: key_cache, value_cache, key_scales and value_scales, as launchers name them.
        scattered: [batch, blocks] int32: every block of every context somewhere else.
        in_order: [batch, blocks] int32: block after block.
        context_lens: [batch] int32.
    """

    caches: CacheTensors
    scattered: Tensor
    in_order: Tensor
    context_lens: Tensor

    @property
    def bytes_read(self) -> int:
        """Bytes of keys, values and scales that attention over all contexts has to read."""
        return sum(cache.nbytes for cache in tensors_of(self.caches))


def paged_inputs(
    sizes: HeadSizes, *, batch: int, context: int, stored: torch.dtype, device: torch.device
) -> PagedInputs:
    """Fill a cache that holds `batch` contexts of `context` tokens, a multiple of the block."""
    generator = torch.Generator(device).manual_seed(SEED)
    blocks = context // sizes.block_size
    num_blocks = batch * blocks
    caches = empty_caches(sizes, num_blocks, stored, device)
    key, value = (noise((sizes.block_size, *sizes.vectors), generator, device) for _ in range(2))
    # Block by block, so that the noise takes little memory beside the cache.
    offsets = torch.arange(sizes.block_size, device=device)
    for block in range(min(num_blocks, 256)):
        store_kv(
            key=key.roll(block, 0) * (1 + block % 7 / 7),
            value=value.roll(block, 2),
            slots=block * sizes.block_size + offsets,
            **caches,
        )
    for cache in tensors_of(caches):
        _repeat_first(cache, 256)
    order = torch.arange(num_blocks, device=device)
    shuffled = torch.randperm(num_blocks, generator=generator, device=device)
    return PagedInputs(
        caches,
        scattered=shuffled.view(batch, blocks).int(),
        in_order=order.view(batch, blocks).int(),
        context_lens=torch.full((batch,), context, dtype=torch.int32, device=device),
    )


def empty_caches(
    sizes: HeadSizes, num_blocks: int, stored: torch.dtype, device: torch.device
) -> CacheTensors:
    """Return zeros, with scales where the type needs them."""
    shape = (num_blocks, sizes.block_size, *sizes.vectors)
    scaled = stored == torch.int8
    return {
        "key_cache": torch.zeros(shape, dtype=stored, device=device),
        "value_cache": torch.zeros(shape, dtype=stored, device=device),
        "key_scales": torch.zeros(shape[:3], device=device) if scaled else None,
        "value_scales": torch.zeros(shape[:3], device=device) if scaled else None,
    }


def noise(shape: tuple[int, ...], generator: torch.Generator, device: torch.device) -> Tensor:
    """Return normal noise in the type that a GPU's model computes in: bf16 (fp32 on a CPU)."""
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    return torch.randn(shape, generator=generator, device=device).to(dtype)


def _repeat_first(cache: Tensor, filled: int) -> None:
    """Fill the rest of a cache with copies of its first blocks."""
    rows = cache.view(torch.uint8)
    for start in range(filled, len(rows), filled):
        end = min(start + filled, len(rows))
        rows[start:end] = rows[: end - start]
