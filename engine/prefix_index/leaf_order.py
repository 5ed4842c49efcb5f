"""The order of eviction of a tree: leaves only, the batch tier's first, the longest unused first.

A sequence holds every block on the way to what it offered, and gives them up from the last to the
first. So nothing on the way to a block in use is ever in the order of unused ones, and a block
normally comes up only after all that follows it. Two things break this, and both are met here:

- An inner block that the batch tier used last, with what follows used by others: it is put back
  behind everything, among the others' blocks.
- A sliding window, or an injected fault, gives inner blocks back while what follows them is in use.
  They are put back as long as there is any leaf. When there is none left, one goes together with
  its branch: whatever follows it is not found any more. A pool never refuses what it has.
"""

from collections.abc import Callable, Iterable

from engine.block_pool import BlockPool
from engine.eviction_order import TieredQueues
from engine.prefix_index.radix_tree import RadixTree


class LeafOrder:
    """The cached blocks of a pool with a tree over them.

    Attributes:
        num_put_back: How often an inner block came up and was put back.
        num_branches_cut: How often a block had to go together with what follows it.
    """

    def __init__(self, pool: BlockPool, tree: RadixTree) -> None:
        self.num_put_back = 0
        self.num_branches_cut = 0
        self._pool = pool
        self._tree = tree
        self._queues = TieredQueues(len(pool.counts))
        self.append: Callable[[list[int], int], None] = self._queues.append
        self.take_back: Callable[[list[int]], None] = self._queues.take_back
        self.in_order: Callable[[], list[int]] = self._queues.in_order

    def take_next(self) -> int:
        """Remove and return the next leaf; the tree loses it."""
        return self._take(self._pool.num_cached)

    def take_oldest(self, n: int) -> list[int]:
        """Remove and return the next `n` leaves, in order; the tree loses them."""
        queues, cached = self._queues, self._pool.num_cached
        taken: list[int] = []
        while len(taken) < n:
            leaves = self._tree.take_leaves(queues.take_oldest(n - len(taken)))
            if leaves.inner:
                queues.append(leaves.inner, 0)
                self.num_put_back += len(leaves.inner)
            # Where leaves are rare, each is looked for by itself.
            taken += leaves.taken or [self._take(cached - len(taken))]
        return taken

    def _take(self, num_cached: int) -> int:
        queues, tree = self._queues, self._tree
        for _ in range(num_cached):
            block_id = queues.take_next()
            if tree.take_leaf(block_id):
                return block_id
            queues.append([block_id], 0)
            self.num_put_back += 1
        block_id = queues.take_next()
        self.num_branches_cut += 1
        self._announce(tree.take_branch(block_id))
        return block_id

    def _announce(self, block_ids: Iterable[int]) -> None:
        self._pool.announce([self._pool.hash_of(block_id) for block_id in block_ids])
