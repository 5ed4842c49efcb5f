"""Gather scattered blocks of all layers into one staging buffer, and scatter them back.

One gather and one copy over the bus instead of a small copy for each block, layer and side: the
staging buffer is contiguous, block after block, so that a pinned host buffer takes it whole.
"""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.block_copy import TILE_WORDS, WORD_NAMES
from kernels.cache_rows import CacheRows, block_numbers
from kernels.errors import ShapeError
from kernels.shapes import require_shape


# One program moves TILE_W words of one block of one cache between the cache and the staging
# buffer. Grid: (tiles of a block, num_caches, num_moved).
@triton.jit  # type: ignore[untyped-decorator, unused-ignore]  # Triton ships no types.
def _swap_blocks_kernel(
    addresses_ptr: tl.tensor,  # [num_caches] int64: where each cache begins
    block_ids_ptr: tl.tensor,  # [num_moved]
    staging_ptr: tl.tensor,  # [num_moved, num_caches, words_per_block]
    words_per_block: tl.tensor,
    WORD: tl.constexpr,  # noqa: N803 - constexprs are in capitals
    TILE_W: tl.constexpr,  # noqa: N803
    TO_STAGING: tl.constexpr,  # noqa: N803
) -> None:
    cache = tl.load(addresses_ptr + tl.program_id(1)).to(tl.pointer_type(WORD))
    block = tl.load(block_ids_ptr + tl.program_id(2)).to(tl.int64)
    word = tl.program_id(0).to(tl.int64) * TILE_W + tl.arange(0, TILE_W)
    inside = word < words_per_block
    row = tl.program_id(2).to(tl.int64) * tl.num_programs(1) + tl.program_id(1)
    in_cache = cache + block * words_per_block + word
    in_staging = staging_ptr + row * words_per_block + word
    if TO_STAGING:
        tl.store(in_staging, tl.load(in_cache, mask=inside, other=0), mask=inside)
    else:
        tl.store(in_cache, tl.load(in_staging, mask=inside, other=0), mask=inside)


def staging_for(groups: Sequence[CacheRows], num_blocks: int) -> list[Tensor]:
    """Return a buffer per group for `num_blocks` blocks: [num_blocks, words of all its caches]."""
    return [
        torch.empty((num_blocks, rows.words_of_all), dtype=rows.word, device=rows.addresses.device)
        for rows in groups
    ]


def gather_blocks(
    groups: Sequence[CacheRows], block_ids: Sequence[int], staging: Sequence[Tensor]
) -> None:
    """Copy the blocks named, in that order, into the staging buffers.

    Args:
        groups: What `cache_rows` made of the caches.
        block_ids: Blocks to read.
        staging: One for each group, [len(block_ids), words of all its caches], as `staging_for`
            makes them; changed in place.

    Raises:
        ShapeError: A buffer differs from the above, or there is no such block.
    """
    _swap(groups, block_ids, staging, to_staging=True)


def scatter_blocks(
    groups: Sequence[CacheRows], block_ids: Sequence[int], staging: Sequence[Tensor]
) -> None:
    """Copy the staging buffers back into the blocks named; the caches change in place.

    Args:
        groups: What `cache_rows` made of the caches.
        block_ids: Blocks to write, all different.
        staging: As `gather_blocks` fills them.

    Raises:
        ShapeError: A buffer differs from the above, a block is named twice, or there is none.
    """
    if len(set(block_ids)) != len(block_ids):
        raise ShapeError(f"a block is named twice in {list(block_ids)}")
    _swap(groups, block_ids, staging, to_staging=False)


def _swap(
    groups: Sequence[CacheRows],
    block_ids: Sequence[int],
    staging: Sequence[Tensor],
    *,
    to_staging: bool,
) -> None:
    for rows, buffer in zip(groups, staging, strict=True):
        require_shape("staging", buffer, (len(block_ids), rows.words_of_all))
        if buffer.dtype != rows.word or buffer.device != rows.addresses.device:
            raise ShapeError(
                f"staging is {buffer.dtype} on {buffer.device}; expected {rows.word} on "
                f"{rows.addresses.device}"
            )
        if not buffer.is_contiguous():
            raise ShapeError("staging is not contiguous")
        if not block_ids:
            continue
        grid = (triton.cdiv(rows.words_per_block, TILE_WORDS), len(rows.caches), len(block_ids))
        _swap_blocks_kernel[grid](
            rows.addresses,
            block_numbers(block_ids, rows),
            buffer,
            rows.words_per_block,
            WORD=WORD_NAMES[rows.word],
            TILE_W=TILE_WORDS,
            TO_STAGING=to_staging,
        )
