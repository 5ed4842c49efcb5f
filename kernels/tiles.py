"""How the work of the attention kernels is cut, for each device.

The numbers for GPUs follow from sizes (see each function); none has been measured yet:
`kvpulse bench kernels --sweep` times the alternatives.
"""

from dataclasses import dataclass
from typing import Final

from torch import Tensor

MIN_TOKENS: Final = 16
# A split shorter than this costs more in its partial result and the merge than it saves.
MIN_SPLIT_TOKENS: Final = 512
MAX_SPLITS: Final = 64
# Programs wanted for each multiprocessor, so that one that ends early leaves no hole.
PROGRAMS_PER_CORE: Final = 4


@dataclass(frozen=True, slots=True)
class DecodeTiles:
    """Tokens read per round of one program, and how many warps and pipeline stages it has."""

    tokens: int
    num_warps: int = 4
    num_stages: int = 3


@dataclass(frozen=True, slots=True)
class PrefillTiles:
    """Rows (query tokens x shared heads) of a program, and tokens read per round."""

    rows: int
    tokens: int
    num_warps: int = 4
    num_stages: int = 2


def decode_tiles(cache: Tensor) -> DecodeTiles:
    """Choose tiles for a cache of [num_blocks, block_size, num_kv_heads, head_dim].

    A round should read 16 KiB of keys, so that three stages keep enough bytes on their way.
    """
    if not cache.is_cuda:
        return DecodeTiles(tokens=MIN_TOKENS)
    row_bytes = cache.shape[3] * cache.dtype.itemsize
    tokens = _power_of_two_at_most(16_384 // row_bytes)
    return DecodeTiles(tokens=min(max(tokens, MIN_TOKENS), 128))


def prefill_tiles(cache: Tensor, *, num_shared: int) -> PrefillTiles:
    """Choose tiles; a program must hold the shared heads of one token at the least."""
    least_rows = MIN_TOKENS
    while least_rows < num_shared:
        least_rows *= 2
    if not cache.is_cuda:
        return PrefillTiles(rows=least_rows, tokens=MIN_TOKENS)
    if cache.dtype.itemsize == 4:
        # fp32 is multiplied without tensor cores, out of registers: a large tile spills.
        return PrefillTiles(rows=max(least_rows, 32), tokens=32)
    return PrefillTiles(rows=max(least_rows, 64), tokens=64 if cache.shape[3] <= 128 else 32)


def choose_splits(*, num_programs: int, max_context: int, num_cores: int) -> int:
    """Return into how many parts each context should be cut.

    One for a batch that fills the GPU by itself; else as many as give every multiprocessor
    PROGRAMS_PER_CORE programs, but none shorter than MIN_SPLIT_TOKENS.

    Args:
        num_programs: Sequences x key heads.
        max_context: Longest context, or a bound on it.
        num_cores: Multiprocessors of the GPU.
    """
    wanted = -(-PROGRAMS_PER_CORE * num_cores // max(num_programs, 1))
    possible = max_context // MIN_SPLIT_TOKENS
    if num_programs >= 2 * num_cores:
        return 1
    return max(1, min(wanted, possible, MAX_SPLITS))


def _power_of_two_at_most(number: int) -> int:
    return 1 << max(number, 1).bit_length() - 1
