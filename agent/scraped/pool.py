"""How many blocks a usage ratio stands for; pure."""

from collections.abc import Iterable
from typing import Final

from agent.scraped.reading import Stated

IS_WHOLE: Final = 1e-4  # a ratio of whole blocks times their number is whole, but for rounding


def usable_blocks(stated: Stated, usages: Iterable[float | None]) -> int | None:
    """Return how many blocks the usage is a part of; None where the number is not stated.

    vLLM keeps one of its blocks as the null block and counts the rest. A server that has none
    counts all; it gives itself away by a usage that is a whole number of blocks only then.
    """
    num_blocks = stated.num_blocks
    if num_blocks is None or not stated.has_null_block:
        return num_blocks
    told = [usage for usage in usages if usage is not None]
    fits_all = all(_is_whole(usage * num_blocks) for usage in told)
    fits_without_null = all(_is_whole(usage * (num_blocks - 1)) for usage in told)
    return num_blocks if fits_all and not fits_without_null else num_blocks - 1


def held_blocks(usage: float | None, usable: int | None) -> int | None:
    """Return the blocks that sequences hold."""
    return None if usage is None or usable is None else round(usage * usable)


def _is_whole(value: float) -> bool:
    return abs(value - round(value)) < IS_WHOLE
