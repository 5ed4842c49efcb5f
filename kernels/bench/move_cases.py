"""The kernels that only move: slot store, block copy, and swap both ways."""

import torch
from torch import Tensor

from kernels import reference_blocks, reference_store
from kernels.bench.kernel_case import KernelCase
from kernels.bench.paged_inputs import SEED, HeadSizes, empty_caches, noise
from kernels.block_copy import copy_blocks
from kernels.cache_rows import CacheRows, cache_rows
from kernels.cache_tensors import tensors_of
from kernels.store import store_kv
from kernels.swap import gather_blocks, scatter_blocks, staging_for


def store_case(
    sizes: HeadSizes, *, num_tokens: int, stored: torch.dtype, device: torch.device
) -> KernelCase:
    """The keys and values of one layer of a step, to slots all over the cache."""
    generator = torch.Generator(device).manual_seed(SEED)
    num_blocks = 2 * num_tokens // sizes.block_size + 1
    caches, expected = (empty_caches(sizes, num_blocks, stored, device) for _ in range(2))
    key, value = (noise((num_tokens, *sizes.vectors), generator, device) for _ in range(2))
    slots = torch.randperm(num_blocks * sizes.block_size, generator=generator, device=device)
    slots = slots[:num_tokens]

    def run() -> None:
        store_kv(key=key, value=value, slots=slots, **caches)

    def difference() -> float:
        run()
        reference_store.store_kv(key=key, value=value, slots=slots, **expected)
        return _most_bits_apart(tensors_of(caches), tensors_of(expected))

    scale_bytes = 4 if stored == torch.int8 else 0
    written = key.numel() * stored.itemsize + key[..., 0].numel() * scale_bytes
    return KernelCase(
        name=f"store {num_tokens} tokens {str(stored).removeprefix('torch.')}",
        run=run,
        difference=difference,
        tolerance=0.0,
        num_bytes=2 * (key.nbytes + written) + slots.nbytes,
    )


def copy_case(
    sizes: HeadSizes, *, num_pairs: int, num_layers: int, device: torch.device
) -> KernelCase:
    """A batch of block copies through all layers."""
    caches = _layers(sizes, 2 * num_pairs, num_layers, device)
    groups = cache_rows(caches)
    pairs = [(index, num_pairs + (index * 7 + 3) % num_pairs) for index in range(num_pairs)]
    if len({target for _, target in pairs}) < num_pairs:
        pairs = [(index, num_pairs + index) for index in range(num_pairs)]

    def difference() -> float:
        expected = [cache.clone() for cache in caches]
        copy_blocks(groups, pairs)
        reference_blocks.copy_blocks(expected, pairs)
        return _most_bits_apart(caches, expected)

    return KernelCase(
        name=f"copy {num_pairs} blocks x {num_layers} layers",
        run=lambda: copy_blocks(groups, pairs),
        difference=difference,
        tolerance=0.0,
        num_bytes=2 * num_pairs * _bytes_of(groups),
    )


def swap_case(
    sizes: HeadSizes, *, num_moved: int, num_layers: int, to_staging: bool, device: torch.device
) -> KernelCase:
    """Scattered blocks of all layers to a staging buffer, or back."""
    caches = _layers(sizes, 2 * num_moved, num_layers, device)
    groups = cache_rows(caches)
    block_ids = [2 * index for index in range(num_moved)][::-1]
    staging = staging_for(groups, num_moved)
    gather_blocks(groups, block_ids, staging)
    move = gather_blocks if to_staging else scatter_blocks

    def difference() -> float:
        before = [cache.clone() for cache in caches]
        for rows in staging if to_staging else caches:
            rows.view(torch.uint8).zero_()
        move(groups, block_ids, staging)
        if to_staging:
            gathered = reference_blocks.gather_blocks(caches, block_ids)
            return _most_bits_apart([staging[0].view(torch.uint8)], [gathered])
        even = [cache[::2] for cache in caches]
        return _most_bits_apart(even, [cache[::2] for cache in before])

    return KernelCase(
        name=f"swap {'out' if to_staging else 'in'} {num_moved} blocks x {num_layers} layers",
        run=lambda: move(groups, block_ids, staging),
        difference=difference,
        tolerance=0.0,
        num_bytes=2 * num_moved * _bytes_of(groups),
    )


def _layers(
    sizes: HeadSizes, num_blocks: int, num_layers: int, device: torch.device
) -> list[Tensor]:
    generator = torch.Generator(device).manual_seed(SEED)
    shape = (num_blocks, sizes.block_size, *sizes.vectors)
    return [noise(shape, generator, device) for _ in range(2 * num_layers)]


def _bytes_of(groups: list[CacheRows]) -> int:
    return sum(rows.bytes_of_all for rows in groups)


def _most_bits_apart(got: list[Tensor], expected: list[Tensor]) -> float:
    """Return the largest difference of two bytes at the same place: 0 where all bits are equal."""
    return max(
        float(
            (
                mine.contiguous().view(torch.uint8).int()
                - theirs.contiguous().view(torch.uint8).int()
            )
            .abs()
            .max()
        )
        for mine, theirs in zip(got, expected, strict=True)
    )
