"""Find kept content by the chained hashes of full blocks, in one table of all contents.

A block's hash covers its tokens and everything before them, so equal hashes mean equal KV. Blocks
are kept and evicted one by one, whatever else stands on them: when an inner block of a chain goes
first, what follows it is still there, but not found any more.
"""

from engine.block_hashers import BlockHasher
from engine.block_pool import BlockPool
from engine.block_table import NULL_BLOCK
from engine.prefix_index.lookup_meter import IndexMeters
from engine.prefix_index.protocol import PrefixHit
from engine.sequence import Sequence


class ChainedHashes:
    """The pool's own table of contents, asked hash by hash."""

    enabled = True

    def __init__(self, pool: BlockPool, *, block_size: int, hasher: BlockHasher) -> None:
        self.meters = IndexMeters()
        self._pool = pool
        self._block_size = block_size
        self._hasher = hasher

    def identify_prompt(self, seq: Sequence) -> None:
        """Hash the full prompt blocks of a sequence that just arrived."""
        started_ns = self.meters.identify.start()
        self._hasher.extend(seq, seq.num_prompt_tokens // self._block_size)
        if started_ns:
            self.meters.identify.stop(started_ns)

    def lookup(self, seq: Sequence) -> PrefixHit:
        """Return the longest kept beginning, short of the block with the last token."""
        started_ns = self.meters.lookup.start()
        block_with, counts = self._pool.block_with, self._pool.counts
        reach = (seq.num_tokens - 1) // self._block_size
        hashes = seq.block_hashes[:reach]
        found: list[int] = []
        num_active = 0
        for content_hash in hashes:
            block_id = block_with(content_hash)
            if block_id is None:
                break
            found.append(block_id)
            if counts[block_id]:
                num_active += 1
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
        ids, hashes = seq.block_table.block_ids[start:end], seq.block_hashes[start:end]
        if ids and ids[0] == NULL_BLOCK:
            num_null = ids.count(NULL_BLOCK)
            ids, hashes = ids[num_null:], hashes[num_null:]
        self._pool.cache(seq.seq_id, ids, hashes, seq.tenant)
        seq.num_hashed_blocks = end
        seq.next_hash_at = (end + 1) * self._block_size
        if started_ns:
            self.meters.offer.stop(started_ns)
