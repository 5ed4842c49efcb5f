"""What the pool answers: refusals, what a free did, and its own account."""

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class AllocationRefusal:
    """An allocation that does not fit: nothing was taken."""

    needed: int
    free: int
    cached: int


class FreeResult(NamedTuple):
    """What became of the blocks of one `free`; `refused` ones were held by nobody."""

    held: int
    to_cache: int
    to_free: int
    refused: int


@dataclass(frozen=True, slots=True)
class PoolAudit:
    """The pool's own account of itself, recounted block by block.

    Attributes:
        checksum: Sum over blocks of weight x count, modulo 2**64 (`kvpulse.events.block_weight`).
        largest_free_run: Longest run of neighbouring ids without content.
    """

    total: int
    active: int
    cached: int
    free: int
    sum_of_counts: int
    checksum: int
    largest_free_run: int
