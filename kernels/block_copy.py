"""Copy whole blocks within the caches of all layers, in one launch for a batch of pairs."""

from collections.abc import Sequence
from typing import Final

import torch
import triton
import triton.language as tl

from kernels.cache_rows import CacheRows, block_numbers
from kernels.errors import OverlapError

# 8 KiB of eight-byte words: a program lasts long enough to be worth starting.
TILE_WORDS: Final = 1024
WORD_NAMES: Final = {
    torch.int64: tl.int64,
    torch.int32: tl.int32,
    torch.int16: tl.int16,
    torch.int8: tl.int8,
}


# One program copies TILE_W words of one pair in one cache.
# Grid: (tiles of a block, num_caches, num_pairs).
@triton.jit  # type: ignore[untyped-decorator, unused-ignore]  # Triton ships no types.
def _copy_blocks_kernel(
    addresses_ptr: tl.tensor,  # [num_caches] int64: where each cache begins
    sources_ptr: tl.tensor,  # [num_pairs]
    targets_ptr: tl.tensor,  # [num_pairs]
    words_per_block: tl.tensor,
    WORD: tl.constexpr,  # noqa: N803 - constexprs are in capitals
    TILE_W: tl.constexpr,  # noqa: N803
) -> None:
    cache = tl.load(addresses_ptr + tl.program_id(1)).to(tl.pointer_type(WORD))
    source = tl.load(sources_ptr + tl.program_id(2)).to(tl.int64)
    target = tl.load(targets_ptr + tl.program_id(2)).to(tl.int64)
    word = tl.program_id(0).to(tl.int64) * TILE_W + tl.arange(0, TILE_W)
    inside = word < words_per_block
    moved = tl.load(cache + source * words_per_block + word, mask=inside, other=0)
    tl.store(cache + target * words_per_block + word, moved, mask=inside)


def copy_blocks(groups: Sequence[CacheRows], pairs: Sequence[tuple[int, int]]) -> None:
    """Copy whole blocks [source, target] in every cache. The copies run in no order.

    Args:
        groups: What `cache_rows` made of the caches; these change in place.
        pairs: Block ids; no target may occur a second time, as target or as source.

    Raises:
        OverlapError: A target occurs again.
        ShapeError: There is no such block.
    """
    require_no_overlap(pairs)
    if not pairs:
        return
    for rows in groups:
        sources = block_numbers([source for source, _ in pairs], rows)
        targets = block_numbers([target for _, target in pairs], rows)
        grid = (triton.cdiv(rows.words_per_block, TILE_WORDS), len(rows.caches), len(pairs))
        _copy_blocks_kernel[grid](
            rows.addresses,
            sources,
            targets,
            rows.words_per_block,
            WORD=WORD_NAMES[rows.word],
            TILE_W=TILE_WORDS,
        )


def has_overlap(pairs: Sequence[tuple[int, int]]) -> bool:
    """Tell whether the order of these copies would matter."""
    return _first_overlap(pairs) is not None


def require_no_overlap(pairs: Sequence[tuple[int, int]]) -> None:
    """Raise OverlapError unless every target occurs only once, and as no source."""
    block_id = _first_overlap(pairs)
    if block_id is not None:
        raise OverlapError(block_id)


def _first_overlap(pairs: Sequence[tuple[int, int]]) -> int | None:
    seen = {source for source, _ in pairs}
    for _, target in pairs:
        if target in seen:
            return target
        seen.add(target)
    return None
