"""Which cached block to evict next: the batch tier's first, the longest unused first within each.

`TieredQueues` is the order of a pool whose content index is a table of hashes. The radix tree puts
its own order around it (`prefix_index.leaf_order`), since a tree gives up leaves only.
"""

from typing import Final, Protocol

from engine.unused_blocks import UnusedBlocks

BATCH_TIER: Final = 1


class EvictionOrder(Protocol):
    """The cached blocks of a pool, in the order in which they are given up."""

    def append(self, block_ids: list[int], tier: int) -> None:
        """Take in blocks that were used just now, by a sequence of that tier."""

    def take_back(self, block_ids: list[int]) -> None:
        """Let blocks leave the order: they are counted on again."""

    def take_next(self) -> int:
        """Remove and return the next block to evict."""

    def take_oldest(self, n: int) -> list[int]:
        """Remove and return the next `n` blocks to evict, in order."""

    def in_order(self) -> list[int]:
        """Return all blocks, the next to evict first."""


class TieredQueues:
    """Two queues by last use: blocks that the batch tier used last go before all others."""

    def __init__(self, total_blocks: int) -> None:
        self._queue = UnusedBlocks(total_blocks)
        self._batch_queue = UnusedBlocks(total_blocks)
        self._in_batch: set[int] = set()  # what of the cached blocks is in the batch queue

    def append(self, block_ids: list[int], tier: int) -> None:
        """Take in blocks that were used just now, by a sequence of that tier."""
        if tier < BATCH_TIER:
            self._queue.append(block_ids)
        else:
            self._batch_queue.append(block_ids)
            self._in_batch.update(block_ids)

    def take_back(self, block_ids: list[int]) -> None:
        """Let blocks leave the order: they are counted on again."""
        if not self._in_batch:
            self._queue.take_back(block_ids)
            return
        batch = [b for b in block_ids if b in self._in_batch]
        self._in_batch.difference_update(batch)
        self._batch_queue.take_back(batch)
        taken = set(batch)
        self._queue.take_back([b for b in block_ids if b not in taken])

    def take_next(self) -> int:
        """Remove and return the next block to evict."""
        if not self._in_batch:
            return self._queue.take_next()
        block_id = self._batch_queue.take_next()
        self._in_batch.discard(block_id)
        return block_id

    def take_oldest(self, n: int) -> list[int]:
        """Remove and return the next `n` blocks to evict, in order."""
        if not self._in_batch:
            return self._queue.take_oldest(n)
        batch = self._batch_queue.take_oldest(min(n, len(self._in_batch)))
        self._in_batch.difference_update(batch)
        return batch + self._queue.take_oldest(n - len(batch))

    def in_order(self) -> list[int]:
        """Return all blocks, the next to evict first."""
        return self._batch_queue.in_order() + self._queue.in_order()
