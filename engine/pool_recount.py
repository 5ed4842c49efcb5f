"""Recount a pool block by block: its account for the journal, and the checks of its structures."""

from collections import Counter
from operator import mul
from typing import TYPE_CHECKING

from engine.errors import PoolError
from engine.pool_results import PoolAudit
from kvpulse.events import U64_MASK

if TYPE_CHECKING:
    from engine.pool_state import PoolState


def recount(pool: "PoolState", weights: list[int], free: list[int]) -> PoolAudit:
    """Return the pool's account, from its counts; `weights` are those of the checksum."""
    counts = pool.counts
    return PoolAudit(
        total=pool.total_blocks,
        active=len(counts) - counts.count(0),
        cached=pool.num_cached,
        free=len(free),
        sum_of_counts=sum(counts),
        checksum=sum(map(mul, weights, counts)) & U64_MASK,
        largest_free_run=_largest_run(free, len(counts)),
    )


def check_states(pool: "PoolState", free: list[int], withdrawn: list[int]) -> None:
    """Raise `PoolError` unless each block is active, cached, free or withdrawn, once."""
    counts = pool.counts
    if any(count < 0 for count in counts):
        raise PoolError("a block has a negative count")
    active = [block_id for block_id, count in enumerate(counts) if count]
    cached = pool.cached_blocks()
    places = Counter(active + cached + free + withdrawn)
    if any(n != 1 for n in places.values()):
        raise PoolError("a block is on the free list twice, or both there and in use")
    if len(places) != len(counts) or len(places) - len(withdrawn) != pool.total_blocks:
        raise PoolError(
            f"{len(active)} active + {len(cached)} cached + {len(free)} free blocks "
            f"are not the {pool.total_blocks} of the pool"
        )
    if len(cached) != pool.num_cached:
        raise PoolError(f"{len(cached)} blocks are cached, counted {pool.num_cached}")
    if sum(pool.active_by_tenant.values()) != len(active):
        raise PoolError(f"{len(active)} blocks are active, by tenant {pool.active_by_tenant}")
    if pool.num_references != sum(counts):
        raise PoolError(f"{sum(counts)} references, counted {pool.num_references}")


def _largest_run(free: list[int], num_blocks: int) -> int:
    """Return the length of the longest run of neighbouring free ids."""
    marks = bytearray(b"x" * num_blocks)
    for block_id in free:
        marks[block_id] = 0x20
    return max(map(len, marks.split(b"x")))
