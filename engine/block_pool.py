"""The pool: every block of one engine, who counts on it, and what content it keeps.

A block is *active* (count 1 or more), *cached* (count 0, content kept under its hash) or *free*;
active + cached + free = total, always. Cached blocks are taken for new data when no free one is
left, in the pool's order of eviction: the batch tier's first, the longest unused first. Blocks that
were withdrawn are in none of the three, nor in the total.

An act is recorded run by run, a run being neighbours with one fate. Keyframes are taken between
steps only (see `kvpulse.Recorder`), when counts, tables and what was recorded agree.
"""

from collections.abc import Iterable
from typing import Final

from engine.free_runs import HELD, REFUSED, TO_FREE, drop_run
from engine.pool_results import AllocationRefusal, FreeResult
from engine.pool_state import NO_HASH, PoolState
from kvpulse.events import EvictReason

_ONE_FREED: Final = FreeResult(0, 0, 1, 0)
_REUSED: Final = int(EvictReason.REUSED)
_CLEARED: Final = int(EvictReason.CLEARED)


class BlockPool(PoolState):
    """The acts on a pool."""

    def allocate(self, owner: int, n: int, tenant: int = 0) -> list[int] | AllocationRefusal:
        """Take `n` blocks, at least 1: free ones first, then cached ones in order of eviction."""
        free, counts, first_owner = self._free, self._counts, self._first_owner
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
        self.active_by_tenant[tenant] += n
        del free[-n:]
        for block_id in ids:
            counts[block_id] = 1
            first_owner[block_id] = owner
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
                self._reactivate(owner, run, tenant)
            table.extend(run)
            start = end

    def exchange(self, owner: int, own: list[int], kept: list[int], tenant: int = 0) -> None:
        """Let `owner` count on `kept`, which hold the same content, instead of its `own` blocks.

        Its own ones are given up. The caller puts `kept` into the table.
        """
        self.share(owner, kept, [], tenant)
        self.free(owner, own, tenant)

    def free(self, owner: int, ids: list[int], tenant: int = 0, tier: int = 0) -> FreeResult:
        """Drop `owner`'s reference on each of `ids`, the last first, and empty the list.

        Reversed, so that the tail of a chain is evicted before what it builds on. A block that
        nobody holds is refused: recorded, counted, and passed over. What stays cached was last used
        by somebody of this `tier`: 1, the batch tier's, is evicted before all others.
        """
        n = len(ids)
        if n == 1:
            block_id = ids[0]
            if self._counts[block_id] == 1 and not self._hash_of[block_id] and block_id >= 0:
                self.num_freed += 1
                if self._recorder is not None:
                    self._recorder.free(owner, ids, 0, TO_FREE, tenant)
                self._counts[block_id] = 0
                self.active_by_tenant[tenant] -= 1
                if self.outlived:
                    self.outlived.discard(block_id)
                self._free.append(ids.pop())
                return _ONE_FREED
        self.num_freed += n
        tally = [0, 0, 0, 0]
        counts, hash_of = self._counts, self._hash_of
        blocks = ids[::-1]
        ids.clear()
        while blocks:
            count, outcome, n = drop_run(counts, hash_of, blocks)
            run = blocks if n == len(blocks) else blocks[:n]
            if self._recorder is not None:
                self._recorder.free(owner, run, count, outcome, tenant)
            if outcome == HELD:
                first_owner = self._first_owner
                self.outlived.update([b for b in run if first_owner[b] == owner])
            elif outcome == REFUSED:
                self.num_refused += n
            else:
                self.active_by_tenant[tenant] -= n
                if self.outlived:
                    self.outlived.difference_update(run)
                if outcome == TO_FREE:
                    self._free += run
                else:
                    self._keep_unused(run, tier)
            tally[outcome] += n
            blocks = blocks[n:]
        return FreeResult(*tally)

    def cache(self, owner: int, ids: list[int], hashes: list[int], tenant: int = 0) -> int:
        """Keep active blocks under their content hashes; return how many were not duplicates.

        Blocks are gone through one by one only if there is a duplicate, or one with a hash, among
        them.
        """
        if len(ids) == 1:
            return self._cache_one(owner, ids, hashes, tenant)
        block_of, hash_of = self._block_of, self._hash_of
        fresh = dict(zip(hashes, ids, strict=True))
        if (
            len(fresh) < len(ids)
            or not block_of.keys().isdisjoint(hashes)
            or any(map(hash_of.__getitem__, ids))
        ):
            fresh = {}
            for block_id, content_hash in zip(ids, hashes, strict=True):
                if content_hash not in block_of and not hash_of[block_id]:
                    fresh.setdefault(content_hash, block_id)
        if not fresh:
            return 0
        kept = list(fresh.values())
        if self._recorder is not None:
            self._recorder.cache(owner, kept, list(fresh), tenant)
        self.num_kept += len(kept)
        block_of.update(fresh)
        for content_hash, block_id in fresh.items():
            hash_of[block_id] = content_hash
        if self.watchers:
            self._touch(fresh)
        return len(kept)

    def _cache_one(self, owner: int, ids: list[int], hashes: list[int], tenant: int) -> int:
        """Keep one block, as each sequence asks once per block that it fills with output."""
        (block_id,), (content_hash,) = ids, hashes
        if content_hash in self._block_of or self._hash_of[block_id]:
            return 0
        if self._recorder is not None:
            self._recorder.cache(owner, ids, hashes, tenant)
        self.num_kept += 1
        self._block_of[content_hash] = block_id
        self._hash_of[block_id] = content_hash
        if self.watchers:
            self._touch(hashes)
        return 1

    def clear_cached(self) -> int:
        """Forget the content of every cached block; return how many became free."""
        num_cleared = self.num_cached
        if num_cleared:
            self._evict(num_cleared, 0, 0, _CLEARED)
        return num_cleared

    def withdraw(self, n: int) -> int:
        """Take up to `n` blocks out of service, free ones first; return how many.

        Cached ones are evicted for it as far as free ones do not suffice; active ones stay. Ids do
        not change, and the next `pool` record states the smaller total.
        """
        n = min(n, self.num_available)
        if n > len(self._free):
            self._evict(n - len(self._free), 0, 0, _CLEARED)
        self._withdrawn += self._free[:n]  # those that would be given out last
        del self._free[:n]
        self.total_blocks -= n
        return n

    def restore(self, n: int) -> int:
        """Take up to `n` withdrawn blocks into service again; return how many."""
        n = min(n, len(self._withdrawn))
        if n:
            self._free[:0] = self._withdrawn[-n:]
            del self._withdrawn[-n:]
            self.total_blocks += n
        return n

    def announce(self, hashes: Iterable[int]) -> None:
        """Let those who wait for some contents look again: where they are found has changed."""
        if self.watchers:
            self._touch(hashes)

    def _keep_unused(self, run: list[int], tier: int) -> None:
        """Put blocks that keep their content at the end of the order of unused ones."""
        self._order.append(run, tier)
        self.num_cached += len(run)
        if self.watchers:
            self._touch(map(self._hash_of.__getitem__, run))

    def _reactivate(self, owner: int, run: list[int], tenant: int) -> None:
        """Take cached blocks out of the order of unused ones: they are counted on again."""
        self.num_cached -= len(run)
        self.active_by_tenant[tenant] += len(run)
        for block_id in run:
            self._first_owner[block_id] = owner
        self._order.take_back(run)
        if self.watchers:
            self._touch(map(self._hash_of.__getitem__, run))

    def _evict(self, n: int, owner: int, tenant: int, reason: int) -> None:
        """Turn the next `n` cached blocks into free ones."""
        # A keyframe cares which blocks are cached, not in which order: taken early is safe.
        ids = self._order.take_oldest(n)
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
        """Evict the next block and give it out, as a decode step asks of a full pool."""
        block_id = self._order.take_next()
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
        self.active_by_tenant[tenant] += 1
        self._counts[block_id] = 1
        self._first_owner[block_id] = owner
        return ids

    def _touch(self, hashes: Iterable[int]) -> None:
        watchers = self.watchers
        for content_hash in hashes:
            if content_hash in watchers:
                self.touched |= watchers[content_hash]
