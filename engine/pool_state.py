"""What a pool knows of its blocks: counts, contents, and the sums that are kept of them."""

from collections import defaultdict
from typing import TYPE_CHECKING, Final, cast

from engine.errors import PoolError
from engine.eviction_order import EvictionOrder, TieredQueues
from engine.host_recording import HostRecording
from engine.pool_recount import check_states, recount
from engine.pool_results import PoolAudit
from kvpulse.events import Kind, block_weight

if TYPE_CHECKING:
    from kvpulse.recorder import Recorder

NO_HASH: Final = 0


class PoolState:
    """Counts, free list, cached blocks in order of their last use, and the index of contents.

    `watchers` maps a content hash to whoever waits for that content; when a block under that hash
    changes state, its watchers are added to `touched` (see `wait_causes`).

    Attributes:
        total_blocks: Blocks in service.
        active_by_tenant: Active blocks of each tenant: content is never shared across tenants.
        outlived: Active blocks that whoever made them active has given up: sharing keeps them.
    """

    def __init__(
        self, total_blocks: int, *, recorder: "Recorder | None" = None, host: bool = False
    ) -> None:
        self.total_blocks = total_blocks
        self.num_cached = 0
        self.watchers: dict[int, set[int]] = {}
        self.touched: set[int] = set()
        self.active_by_tenant: defaultdict[int, int] = defaultdict(int)
        self.outlived: set[int] = set()
        # Acts, counted by block; plain integers, since a dict of enums costs more than the act.
        self.num_allocated = 0
        self.num_shared = 0
        self.num_freed = 0
        self.num_kept = 0
        self.num_evicted = 0
        self.num_refused = 0
        self._recorder = recorder
        if host and recorder is not None:
            # Host blocks keep no content: cache and evict are never stated of them.
            self._recorder = cast("Recorder", HostRecording(recorder))
        self._counts = [0] * total_blocks
        self._hash_of = [NO_HASH] * total_blocks
        self._block_of: dict[int, int] = {}
        self._weights = [block_weight(block_id) for block_id in range(total_blocks)]
        self._free = list(range(total_blocks - 1, -1, -1))  # taken from the end
        self._withdrawn: list[int] = []
        self._first_owner = [0] * total_blocks  # who made the block active
        self._order: EvictionOrder = TieredQueues(total_blocks)

    def evict_by(self, order: EvictionOrder) -> None:
        """Let cached blocks be given up in another order; nothing is cached yet."""
        assert not self.num_cached, "an order begins empty"
        self._order = order

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
    def num_references(self) -> int:
        """Return how many references are held, over all blocks."""
        return self.num_allocated + self.num_shared + self.num_refused - self.num_freed

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

    def hash_of(self, block_id: int) -> int:
        """Return the content hash of a block, 0 for none."""
        return self._hash_of[block_id]

    def hashes(self) -> dict[int, int]:
        """Return the content hash of each block that has one."""
        return {block_id: content_hash for content_hash, block_id in self._block_of.items()}

    def cached_blocks(self) -> list[int]:
        """Return the cached blocks, in order of id."""
        counts, hash_of = self._counts, self._hash_of
        return [b for b, content_hash in enumerate(hash_of) if content_hash and not counts[b]]

    def audit(self) -> PoolAudit:
        """Recount the pool block by block, from its own counts."""
        return recount(self, self._weights, self._free)

    def check(self) -> None:
        """Recount everything and raise `PoolError` at the first thing that disagrees."""
        check_states(self, self._free, self._withdrawn)
        if {b: h for b, h in enumerate(self._hash_of) if h} != self.hashes():
            raise PoolError("the two directions of the content index disagree")
        if sorted(self._order.in_order()) != self.cached_blocks():
            raise PoolError("the order of unused blocks does not hold the cached ones once each")
        if not all(map(self._counts.__getitem__, self.outlived)):
            raise PoolError("a block that nobody holds is said to have outlived its first owner")
