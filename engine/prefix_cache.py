"""Find what the pool still keeps of a prompt, by the chained hashes of its full blocks.

A block's hash covers its tokens and everything before them, so equal hashes mean equal KV. A
sequence always computes at least its last token: a hit therefore ends before the block that holds
it, and that whole block is computed anew into a block of the sequence's own. Shared blocks are full
and never written.
"""

from typing import NamedTuple, Protocol

from engine.block_pool import BlockPool
from engine.sequence import NEVER, Sequence


class BlockHasher(Protocol):
    """Gives full blocks their content identity."""

    def extend(self, seq: Sequence, num_blocks: int) -> None:
        """Make `seq.block_hashes` cover its first `num_blocks` blocks, all of them full."""


class PrefixHit(NamedTuple):
    """Blocks that hold the beginning of a sequence; `num_active` of them somebody counts on."""

    block_ids: list[int]
    hashes: list[int]
    num_active: int


class PrefixCache:
    """The content index of a pool, asked and fed sequence by sequence."""

    def __init__(self, pool: BlockPool, *, block_size: int, hasher: BlockHasher | None) -> None:
        self._pool = pool
        self._block_size = block_size
        self._hasher = hasher

    @property
    def enabled(self) -> bool:
        """Return whether content is kept at all."""
        return self._hasher is not None

    def identify_prompt(self, seq: Sequence) -> None:
        """Hash the full blocks of a sequence that just arrived."""
        if self._hasher is not None:
            self._hasher.extend(seq, seq.num_prompt_tokens // self._block_size)

    def lookup(self, seq: Sequence) -> PrefixHit:
        """Return the longest kept beginning, short of the block with the last token."""
        if self._hasher is None:
            return PrefixHit([], [], 0)
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
        return PrefixHit(found, hashes, num_active)

    def begin(self, seq: Sequence, num_hit_blocks: int) -> None:
        """Start to offer the blocks after a hit, as they fill."""
        if self._hasher is not None:
            seq.num_hashed_blocks = num_hit_blocks
            seq.next_hash_at = (num_hit_blocks + 1) * self._block_size
        else:
            seq.next_hash_at = NEVER

    def offer(self, seq: Sequence) -> None:
        """Keep the blocks that a step just filled; call when `next_hash_at` is reached."""
        assert self._hasher is not None, "without a cache nothing is due"
        start, end = seq.num_hashed_blocks, seq.num_computed_tokens // self._block_size
        if len(seq.block_hashes) < end:
            self._hasher.extend(seq, end)
        ids = seq.block_table.block_ids[start:end]
        self._pool.cache(seq.seq_id, ids, seq.block_hashes[start:end], seq.tenant)
        seq.num_hashed_blocks = end
        seq.next_hash_at = (end + 1) * self._block_size
