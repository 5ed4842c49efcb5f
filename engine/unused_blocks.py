"""The order in which cached blocks were last used: which one to evict next."""

from collections import deque
from itertools import repeat

from engine.errors import PoolError


class UnusedBlocks:
    """Cached blocks, the longest unused first.

    A block taken back by a share stays in the queue as a stale entry: `_stale` says how many of a
    block's entries, the oldest ones, are to be passed over. So every act costs the same however
    deep in the queue the block lies.
    """

    def __init__(self, total_blocks: int) -> None:
        self._queue: deque[int] = deque()
        self._stale = [0] * total_blocks
        self._longest = 2 * total_blocks + 64

    def append(self, block_ids: list[int]) -> None:
        """Put blocks at the end of the order: they were used just now."""
        self._queue.extend(block_ids)

    def take_back(self, block_ids: list[int]) -> None:
        """Let blocks leave the order: they are counted on again."""
        stale = self._stale
        for block_id in block_ids:
            stale[block_id] += 1
        if len(self._queue) > self._longest:
            valid = self.in_order()
            self._queue.clear()
            self._queue.extend(valid)
            self._stale = [0] * len(stale)

    def take_next(self) -> int:
        """Remove and return the longest unused block."""
        stale = self._stale
        block_id = self._queue.popleft()
        while stale[block_id]:
            stale[block_id] -= 1
            block_id = self._queue.popleft()
        return block_id

    def take_oldest(self, n: int) -> list[int]:
        """Remove and return the `n` longest unused blocks."""
        popleft, stale = self._queue.popleft, self._stale
        block_ids = []
        for _ in repeat(None, n):
            block_id = popleft()
            while stale[block_id]:
                stale[block_id] -= 1
                block_id = popleft()
            block_ids.append(block_id)
        return block_ids

    def in_order(self) -> list[int]:
        """Return the unused blocks, the longest unused first.

        Raises:
            PoolError: More entries are stale than there are.
        """
        pending = list(self._stale)
        valid = []
        for block_id in self._queue:
            if pending[block_id]:
                pending[block_id] -= 1
            else:
                valid.append(block_id)
        if any(pending):
            raise PoolError("the order of unused blocks has lost entries")
        return valid
