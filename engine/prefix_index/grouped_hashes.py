"""Find kept content where a model's layers lie in several KV groups, each with blocks of its own.

A stretch of tokens has one identity (its chained hash) and, in each group, a block of its own under
a hash derived from that. A group without a window needs all blocks of a beginning; one with a
window needs those that the first token after it attends to, and no others: they may have been
evicted long ago. A hit is the longest beginning that every group can serve.

Source: vLLM's `HybridKVCacheCoordinator` and `SlidingWindowManager.find_longest_cache_hit`
(vllm/v1/core/kv_cache_coordinator.py, single_type_kv_cache_manager.py).
"""

from collections.abc import Iterable
from operator import le
from typing import NamedTuple

from engine.block_hashers import BlockHasher, mix
from engine.block_pool import BlockPool
from engine.block_table import NULL_BLOCK
from engine.lineup import group_of
from engine.prefix_index.lookup_meter import IndexMeters
from engine.prefix_index.protocol import PrefixHit
from engine.sequence import Sequence
from engine.table_span import TableSpan


class _Kept(NamedTuple):
    """What was looked up: hashes, and the blocks that keep those contents, null where none does."""

    hashes: list[int]
    places: list[int]


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
        kept = self._walk(seq.block_hashes[:reach])
        num_hit = self._longest(kept.places)
        places = kept.places[: num_hit * self._span.num_groups]
        found = self._span.seen(places, num_hit * self._block_size)
        counts = self._pool.counts
        num_active = sum(1 for block in found if block != NULL_BLOCK and counts[block])
        if started_ns:
            self.meters.lookup.stop(started_ns)
        return PrefixHit(found, kept.hashes, num_active)

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

    def _walk(self, identities: list[int]) -> _Kept:
        """Look stretches up until a group without a window, which needs all, lacks one."""
        block_with, num_full = self._pool.block_with, self._span.windows.count(None)
        hashes: list[int] = []
        places: list[int] = []
        for identity in identities:
            derived = self._derived((identity,))
            blocks = [block_with(each) for each in derived]
            hashes += derived
            if None in blocks[:num_full]:
                break
            places += [NULL_BLOCK if block is None else block for block in blocks]
        return _Kept(hashes, places)

    def _longest(self, places: list[int]) -> int:
        """Return how many stretches the longest beginning has that every group can serve."""
        span, groups = self._span, self._span.num_groups
        since = [0] * groups  # the first stretch from which on a group has kept all
        longest = 0
        for stretch in range(1, len(places) // groups + 1):
            for group, block in enumerate(places[(stretch - 1) * groups : stretch * groups]):
                if block == NULL_BLOCK:
                    since[group] = stretch
            first_seen = (span.first(window, stretch * self._block_size) for window in span.windows)
            if all(map(le, since, first_seen)):
                longest = stretch
        return longest
