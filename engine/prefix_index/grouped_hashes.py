"""Find kept content where a model's layers lie in several KV groups, each with blocks of its own.

A stretch of tokens has one identity (its chained hash) and, in each group, a block of its own under
a hash derived from that. A group without a window needs all blocks of a beginning; one with a
window needs those that the first token after it attends to, and no others: they may have been
evicted long ago. A hit is the longest beginning that every group can serve.

Source: vLLM's `HybridKVCacheCoordinator` and `SlidingWindowManager.find_longest_cache_hit`
(vllm/v1/core/kv_cache_coordinator.py, single_type_kv_cache_manager.py).
"""

from collections.abc import Iterable

from engine.block_hashers import BlockHasher, mix
from engine.block_pool import BlockPool
from engine.block_table import NULL_BLOCK
from engine.lineup import group_of
from engine.prefix_index.lookup_meter import IndexMeters
from engine.prefix_index.protocol import PrefixHit
from engine.sequence import Sequence
from engine.table_span import TableSpan


class GroupedHashes:
    """The pool's table of contents, asked for every group's block of a stretch."""

    enabled = True

    def __init__(self, pool: BlockPool, *, span: TableSpan, hasher: BlockHasher) -> None:
        self.meters = IndexMeters()
        self._pool = pool
        self._span = span
        self._block_size = span.block_size
        self._hasher = hasher
        self._marks = [0, *(mix(group) for group in range(1, span.num_groups))]

    def identify_prompt(self, seq: Sequence) -> None:
        """Hash the full prompt blocks of a sequence that just arrived."""
        started_ns = self.meters.identify.start()
        self._hasher.extend(seq, seq.num_prompt_tokens // self._block_size)
        if started_ns:
            self.meters.identify.stop(started_ns)

    def lookup(self, seq: Sequence) -> PrefixHit:
        """Return the longest beginning that all groups have kept what they need of.

        It ends short of the block with the last token, and for beams that come back together
        where they begin to differ. Places that no group needs are null.
        """
        started_ns = self.meters.lookup.start()
        reach = (seq.num_tokens - 1) // self._block_size
        if len(group_of(seq)) > 1:
            reach = min(reach, seq.num_shared_blocks)
        hashes = self._derived(seq.block_hashes[:reach])
        kept = [self._pool.block_with(each) for each in hashes]
        end = self._longest(kept) * self._span.num_groups
        places = [NULL_BLOCK if block is None else block for block in kept[:end]]
        found = self._span.seen(places, end // self._span.num_groups * self._block_size)
        counts = self._pool.counts
        num_active = sum(1 for block in found if block != NULL_BLOCK and counts[block])
        if started_ns:
            self.meters.lookup.stop(started_ns)
        return PrefixHit(found, hashes, num_active)

    def begin(self, seq: Sequence, num_hit_blocks: int) -> None:
        """Start to offer the blocks after a hit, as they fill."""
        seq.num_hashed_blocks = num_hit_blocks
        seq.next_hash_at = (num_hit_blocks + 1) * self._block_size

    def offer(self, seq: Sequence) -> None:
        """Keep the blocks that a step just filled; those that are duplicates are not kept."""
        started_ns = self.meters.offer.start()
        start, end = seq.num_hashed_blocks, seq.num_computed_tokens // self._block_size
        if len(seq.block_hashes) < end:
            self._hasher.extend(seq, end)
        groups = self._span.num_groups
        ids = seq.block_table.block_ids[start * groups : end * groups]
        hashes = self._derived(seq.block_hashes[start:end])
        if NULL_BLOCK in ids:
            held = [pair for pair in zip(ids, hashes, strict=True) if pair[0] != NULL_BLOCK]
            ids, hashes = [block for block, _ in held], [each for _, each in held]
        self._pool.cache(seq.seq_id, ids, hashes, seq.tenant)
        seq.num_hashed_blocks = end
        seq.next_hash_at = (end + 1) * self._block_size
        if started_ns:
            self.meters.offer.stop(started_ns)

    def _derived(self, hashes: Iterable[int]) -> list[int]:
        """Return the hash of every group's block of each stretch; the first group's is its own."""
        marks = self._marks
        return [(content_hash ^ mark) or 1 for content_hash in hashes for mark in marks]

    def _longest(self, kept: list[int | None]) -> int:
        """Return how many stretches the longest beginning has that every group can serve.

        Args:
            kept: Of each place, the block that keeps its content.
        """
        windows, groups, size = self._span.windows, self._span.num_groups, self._block_size
        since = [0] * groups  # the first stretch from which on a group has kept all
        longest = 0
        for stretch in range(len(kept) // groups):
            here = kept[stretch * groups : (stretch + 1) * groups]
            for group, block in enumerate(here):
                if block is None:
                    if windows[group] is None:
                        return longest
                    since[group] = stretch + 1
            computed = (stretch + 1) * size
            if all(
                first <= self._span.first(window, computed)
                for first, window in zip(since, windows, strict=True)
            ):
                longest = stretch + 1
        return longest
