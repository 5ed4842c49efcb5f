"""The pool: every block of one engine, who counts on it, and what content it keeps.

A block is *active* (count 1 or more), *cached* (count 0, content kept under its hash) or *free*;
active + cached + free = total, always. Cached blocks are taken for new data when no free one is
left, the longest unused first.

An act is recorded run by run, a run being neighbours with one fate. Keyframes are taken between
steps only (see `kvpulse.Recorder`), when counts, tables and what was recorded agree.
"""

from collections.abc import Iterable
from operator import length_hint, mul
from typing import TYPE_CHECKING, Final

from engine.errors import PoolError
from engine.pool_results import AllocationRefusal, FreeResult, PoolAudit
from engine.unused_blocks import UnusedBlocks
from kvpulse.events import U64_MASK, EvictReason, FreeOutcome, Kind, block_weight

if TYPE_CHECKING:
    from kvpulse.recorder import Recorder

NO_HASH: Final = 0
_ONE_FREED: Final = FreeResult(0, 0, 1, 0)
_REUSED: Final = int(EvictReason.REUSED)
_CLEARED: Final = int(EvictReason.CLEARED)
_HELD: Final = int(FreeOutcome.HELD)
_TO_CACHE: Final = int(FreeOutcome.TO_CACHE)
_TO_FREE: Final = int(FreeOutcome.TO_FREE)
_REFUSED: Final = int(FreeOutcome.REFUSED)


class BlockPool:
    """Counts, free list, cached blocks in order of their last use, and the index of contents.

    `watchers` maps a content hash to whoever waits for that content; when a block under that hash
    changes state, its watchers are added to `touched` (see `wait_causes`).
    """

    def __init__(self, total_blocks: int, *, recorder: "Recorder | None" = None) -> None:
        self.total_blocks = total_blocks
        self.num_cached = 0
        self.watchers: dict[int, set[int]] = {}
        self.touched: set[int] = set()
        # Acts, counted by block; plain integers, since a dict of enums costs more than the act.
        self.num_allocated = 0
        self.num_shared = 0
        self.num_freed = 0
        self.num_kept = 0
        self.num_evicted = 0
        self._recorder = recorder
        self._counts = [0] * total_blocks
        self._hash_of = [NO_HASH] * total_blocks
        self._block_of: dict[int, int] = {}
        self._weights = [block_weight(block_id) for block_id in range(total_blocks)]
        self._free = list(range(total_blocks - 1, -1, -1))  # taken from the end
        self._unused = UnusedBlocks(total_blocks)

    @property
    def num_free(self) -> int:
        """Return how many blocks hold nothing."""
        return len(self._free)

    @property
    def num_available(self) -> int:
        """Return how many blocks can be taken: free and cached ones."""
        return len(self._free) + self.num_cached

    @property
    def num_active(self) -> int:
        """Return how many blocks somebody counts on."""
        return self.total_blocks - len(self._free) - self.num_cached

    @property
    def counts(self) -> list[int]:
        """Return the reference count of each block; not to be changed."""
        return self._counts

    @property
    def acts(self) -> dict[Kind, int]:
        """Return what the pool did since it was made, in blocks per kind of act."""
        return {
            Kind.ALLOCATE: self.num_allocated,
            Kind.SHARE: self.num_shared,
            Kind.FREE: self.num_freed,
            Kind.CACHE: self.num_kept,
            Kind.EVICT: self.num_evicted,
        }

    def block_with(self, content_hash: int) -> int | None:
        """Return the block that keeps the content, or None."""
        return self._block_of.get(content_hash)

    def hashes(self) -> dict[int, int]:
        """Return the content hash of each block that has one."""
        return {block_id: content_hash for content_hash, block_id in self._block_of.items()}

    def cached_blocks(self) -> list[int]:
        """Return the cached blocks, in order of id."""
        counts, hash_of = self._counts, self._hash_of
        return [b for b in range(self.total_blocks) if not counts[b] and hash_of[b]]

    def allocate(self, owner: int, n: int, tenant: int = 0) -> list[int] | AllocationRefusal:
        """Take `n` blocks, at least 1: free ones first, then the longest unused cached ones."""
        free, counts = self._free, self._counts
        num_free = len(free)
        if n > num_free:
            if n > num_free + self.num_cached:
                return AllocationRefusal(needed=n, free=num_free, cached=self.num_cached)
            if n == 1:
                return self._recycle(owner, tenant)
            self._evict(n - num_free, owner, tenant, _REUSED)
        ids = free[: -n - 1 : -1]
        if self._recorder is not None:
            self._recorder.allocate(owner, ids, tenant)
        self.num_allocated += n
        del free[-n:]
        for block_id in ids:
            counts[block_id] = 1
        return ids

    def share(self, owner: int, ids: list[int], table: list[int], tenant: int = 0) -> None:
        """Let `owner` count on `ids` too, and append them to its `table`.

        Each must be active or cached; cached ones become active again.
        """
        self.num_shared += len(ids)
        counts = self._counts
        start, n = 0, len(ids)
        while start < n:
            count = counts[ids[start]] + 1
            end = start + 1
            while end < n and counts[ids[end]] + 1 == count:
                end += 1
            run = ids[start:end]
            if self._recorder is not None:
                self._recorder.share(owner, run, count, tenant)
            for block_id in run:
                counts[block_id] = count
            if count == 1:
                self._reactivate(run)
            table.extend(run)
            start = end

    def free(self, owner: int, ids: list[int], tenant: int = 0) -> FreeResult:
        """Drop `owner`'s reference on each of `ids`, the last first, and empty the list.

        Reversed, so that the tail of a chain is evicted before what it builds on. A block that
        nobody holds is refused: recorded, counted, and passed over.
        """
        n = len(ids)
        self.num_freed += n
        if n == 1:
            block_id = ids[0]
            if self._counts[block_id] == 1 and not self._hash_of[block_id]:
                if self._recorder is not None:
                    self._recorder.free(owner, ids, 0, _TO_FREE, tenant)
                self._counts[block_id] = 0
                self._free.append(ids.pop())
                return _ONE_FREED
        tally = [0, 0, 0, 0]
        blocks = ids[::-1]
        ids.clear()
        while blocks:
            count, outcome, n = self._drop_run(blocks)
            run = blocks if n == len(blocks) else blocks[:n]
            if self._recorder is not None:
                self._recorder.free(owner, run, count, outcome, tenant)
            if outcome == _TO_FREE:
                self._free += run
            elif outcome == _TO_CACHE:
                self._keep_unused(run)
            tally[outcome] += n
            blocks = blocks[n:]
        return FreeResult(*tally)

    def cache(self, owner: int, ids: list[int], hashes: list[int], tenant: int = 0) -> int:
        """Keep active blocks under their content hashes; return how many were not duplicates."""
        block_of, hash_of = self._block_of, self._hash_of
        fresh: dict[int, int] = {}
        for block_id, content_hash in zip(ids, hashes, strict=True):
            if content_hash not in block_of and not hash_of[block_id]:
                fresh.setdefault(content_hash, block_id)
        if not fresh:
            return 0
        kept = list(fresh.values())
        if self._recorder is not None:
            self._recorder.cache(owner, kept, list(fresh), tenant)
        self.num_kept += len(kept)
        for content_hash, block_id in fresh.items():
            block_of[content_hash] = block_id
            hash_of[block_id] = content_hash
        if self.watchers:
            self._touch(fresh)
        return len(kept)

    def clear_cached(self) -> int:
        """Forget the content of every cached block; return how many became free."""
        num_cleared = self.num_cached
        if num_cleared:
            self._evict(num_cleared, 0, 0, _CLEARED)
        return num_cleared

    def audit(self) -> PoolAudit:
        """Recount the pool block by block, from its own counts."""
        return PoolAudit(
            total=self.total_blocks,
            active=self.total_blocks - self._counts.count(0),
            cached=self.num_cached,
            free=len(self._free),
            sum_of_counts=sum(self._counts),
            checksum=sum(map(mul, self._weights, self._counts)) & U64_MASK,
            largest_free_run=self._largest_free_run(),
        )

    def check(self) -> None:
        """Recount everything and raise `PoolError` at the first thing that disagrees."""
        counts, hash_of, free = self._counts, self._hash_of, self._free
        active = {b for b in range(self.total_blocks) if counts[b]}
        cached = set(self.cached_blocks())
        if any(count < 0 for count in counts):
            raise PoolError("a block has a negative count")
        if len(set(free)) != len(free):
            raise PoolError("a block is on the free list twice")
        if active & set(free) or cached & set(free):
            raise PoolError("an active or cached block is on the free list")
        if len(active) + len(cached) + len(free) != self.total_blocks:
            raise PoolError(
                f"{len(active)} active + {len(cached)} cached + {len(free)} free blocks "
                f"are not the {self.total_blocks} of the pool"
            )
        if len(cached) != self.num_cached:
            raise PoolError(f"{len(cached)} blocks are cached, counted {self.num_cached}")
        if {b: h for b, h in enumerate(hash_of) if h} != self.hashes():
            raise PoolError("the two directions of the content index disagree")
        if sorted(self._unused.in_order()) != sorted(cached):
            raise PoolError("the order of unused blocks does not hold the cached ones once each")

    def _drop_run(self, blocks: list[int]) -> tuple[int, int, int]:
        """Drop a reference on the leading blocks with equal fate; return count, outcome, how many.

        Counts change as the loops go, so that a block named twice ends the run.
        """
        counts, hash_of = self._counts, self._hash_of
        count, kept = counts[blocks[0]] - 1, bool(hash_of[blocks[0]])
        following = iter(blocks)
        if count > 0:
            outcome = _HELD
            for block_id in following:
                if counts[block_id] - 1 != count:
                    break
                counts[block_id] = count
            else:
                return count, outcome, len(blocks)
        elif count < 0:
            outcome, count = _REFUSED, 0
            for block_id in following:
                if counts[block_id]:
                    break
            else:
                return count, outcome, len(blocks)
        elif kept:
            outcome = _TO_CACHE
            for block_id in following:
                if counts[block_id] != 1 or not hash_of[block_id]:
                    break
                counts[block_id] = 0
            else:
                return count, outcome, len(blocks)
        else:
            outcome = _TO_FREE
            for block_id in following:
                if counts[block_id] != 1 or hash_of[block_id]:
                    break
                counts[block_id] = 0
            else:
                return count, outcome, len(blocks)
        return count, outcome, len(blocks) - length_hint(following) - 1

    def _keep_unused(self, run: list[int]) -> None:
        """Put blocks that keep their content at the end of the order of unused ones."""
        self._unused.append(run)
        self.num_cached += len(run)
        if self.watchers:
            self._touch(map(self._hash_of.__getitem__, run))

    def _reactivate(self, run: list[int]) -> None:
        """Take cached blocks out of the order of unused ones: they are counted on again."""
        self.num_cached -= len(run)
        self._unused.take_back(run)
        if self.watchers:
            self._touch(map(self._hash_of.__getitem__, run))

    def _evict(self, n: int, owner: int, tenant: int, reason: int) -> None:
        """Turn the `n` longest unused cached blocks into free ones."""
        # A keyframe cares which blocks are cached, not in which order: taken early is safe.
        ids = self._unused.take_oldest(n)
        if self._recorder is not None:
            self._recorder.evict(ids, reason, owner, tenant)
        self.num_evicted += n
        hash_of, block_of = self._hash_of, self._block_of
        if self.watchers:
            self._touch(map(hash_of.__getitem__, ids))
        for block_id in ids:
            del block_of[hash_of[block_id]]
            hash_of[block_id] = NO_HASH
        self.num_cached -= n
        self._free += reversed(ids)  # the longest unused one is taken first

    def _recycle(self, owner: int, tenant: int) -> list[int]:
        """Evict the longest unused block and give it out, as a decode step asks of a full pool."""
        block_id = self._unused.take_next()
        ids = [block_id]
        if self._recorder is not None:
            self._recorder.evict(ids, _REUSED, owner, tenant)
        content_hash = self._hash_of[block_id]
        if self.watchers:
            self._touch((content_hash,))
        del self._block_of[content_hash]
        self._hash_of[block_id] = NO_HASH
        self.num_evicted += 1
        self.num_cached -= 1
        if self._recorder is not None:
            self._recorder.allocate(owner, ids, tenant)
        self.num_allocated += 1
        self._counts[block_id] = 1
        return ids

    def _touch(self, hashes: Iterable[int]) -> None:
        watchers = self.watchers
        for content_hash in hashes:
            if content_hash in watchers:
                self.touched |= watchers[content_hash]

    def _largest_free_run(self) -> int:
        marks = bytearray(b"x" * self.total_blocks)
        for block_id in self._free:
            marks[block_id] = 0x20
        return max(map(len, marks.split(b"x")))
