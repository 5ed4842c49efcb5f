"""Find kept content in a radix tree over blocks of tokens.

What the tree does that a table of hashes cannot: it gives up leaves only, so that nothing kept is
ever out of reach; it compares tokens and not hashes; and a sequence that computed what the tree has
already is given the tree's blocks instead of its own, which are free again at once.

That exchange is sound. Only full blocks are offered, after the step that filled them; nobody ever
writes a full block; and the next step's tables are packed after it. A fork's copy-on-write concerns
the block that is written next, which is not full. Entries that slid out of a window stay null.

Blocks carry the same keyed chain hashes as with the other index, since events name content by them.
Those of a prompt's kept beginning are read off its blocks, only the rest is hashed.
"""

from array import array
from typing import NamedTuple

from engine.block_hashers import RequestBlockHasher
from engine.block_pool import BlockPool
from engine.block_table import NULL_BLOCK
from engine.errors import PoolError
from engine.prefix_index.leaf_order import LeafOrder
from engine.prefix_index.lookup_meter import IndexMeters
from engine.prefix_index.protocol import PrefixHit
from engine.prefix_index.radix_tree import Place, RadixTree
from engine.sequence import NEVER, Sequence

HASH_BYTES = 8


class ContentKey(NamedTuple):
    """The beginning of a sequence as the tree compares it.

    Attributes:
        scope: Within which it may be shared.
        width: Bytes of one block.
        data: The keys of its leading full blocks, as far as they were needed.
    """

    scope: bytes
    width: int
    data: bytes


class RadixIndex:
    """The index of a pool; it also decides which cached block goes first.

    Attributes:
        num_exchanged: Blocks that sequences computed although the tree had them, and gave up.
    """

    enabled = True

    def __init__(self, pool: BlockPool, *, block_size: int, hasher: RequestBlockHasher) -> None:
        self.meters = IndexMeters()
        self.num_exchanged = 0
        self.tree = RadixTree(len(pool.counts))
        self.order = LeafOrder(pool, self.tree)
        self._pool = pool
        self._block_size = block_size
        self._hasher = hasher
        pool.evict_by(self.order)

    def identify_prompt(self, seq: Sequence) -> None:
        """Name the full prompt blocks of a sequence that just arrived."""
        started_ns = self.meters.identify.start()
        num_blocks = seq.num_prompt_tokens // self._block_size
        if seq.request.simulated is None:
            # Blocks of the same tokens have the same hashes: no need to compute them again.
            key = self._key_of(seq, num_blocks)
            found = self.tree.match(key.scope, key.data, len(key.data))
            seq.block_hashes[:] = map(self._pool.hash_of, found)
        self._hasher.extend(seq, num_blocks)
        if started_ns:
            self.meters.identify.stop(started_ns)

    def lookup(self, seq: Sequence) -> PrefixHit:
        """Return the longest kept beginning, short of the block with the last token."""
        started_ns = self.meters.lookup.start()
        reach = (seq.num_tokens - 1) // self._block_size
        hashes = seq.block_hashes[:reach]
        key = self._key_of(seq, len(hashes))
        found = self.tree.match(key.scope, key.data, len(hashes) * key.width)
        unused = list(map(self._pool.counts.__getitem__, found)).count(0)
        if started_ns:
            self.meters.lookup.stop(started_ns)
        return PrefixHit(found, hashes, len(found) - unused)

    def begin(self, seq: Sequence, num_hit_blocks: int) -> None:
        """Start to offer the blocks after a hit, as they fill."""
        seq.num_hashed_blocks = num_hit_blocks
        seq.next_hash_at = (num_hit_blocks + 1) * self._block_size

    def offer(self, seq: Sequence) -> None:
        """Keep the blocks that a step just filled, or take the tree's where it has them."""
        started_ns = self.meters.offer.start()
        start, end = seq.num_hashed_blocks, seq.num_computed_tokens // self._block_size
        if len(seq.block_hashes) < end:
            self._hasher.extend(seq, end)
        key = self._key_of(seq, end)
        if self._take_in(seq, key, start, end):
            seq.num_hashed_blocks = end
            seq.next_hash_at = (end + 1) * self._block_size
        else:
            seq.next_hash_at = NEVER  # what comes before is gone: nothing can be put behind it
        if started_ns:
            self.meters.offer.stop(started_ns)

    def check(self) -> None:
        """Recount the tree and hold it against the pool; raise `PoolError` where they differ."""
        self.tree.check()
        for block_id in self.tree.block_ids():
            if not self._pool.hash_of(block_id):
                raise PoolError(f"block {block_id} is in the tree and keeps no content")

    def check_ways(self) -> None:
        """Raise `PoolError` unless all on the way to a block in use is in use.

        A sliding window or an injected fault may break this; nothing else does.
        """
        counts = self._pool.counts
        for block_id in self.tree.block_ids():
            way = self.tree.blocks_before(block_id)
            if counts[block_id] and not all(map(counts.__getitem__, way)):
                raise PoolError(f"block {block_id} is in use, but not all that it stands on")

    def _take_in(self, seq: Sequence, key: ContentKey, start: int, end: int) -> bool:
        """Take in the blocks [start, end) of its table; False if there is no place for them."""
        place = self._place(seq, key, start)
        if place is None:
            return False
        data = key.data[start * key.width : end * key.width]
        found, place = self.tree.descend(place, data)
        if found:
            self._exchange(seq, start, found)
        start += len(found)
        if start == end:
            return True
        fresh = seq.block_table.block_ids[start:end]
        if NULL_BLOCK in fresh:
            del fresh[fresh.index(NULL_BLOCK) :]
        hashes = seq.block_hashes[start : start + len(fresh)]
        if self._pool.cache(seq.seq_id, fresh, hashes, seq.tenant) < len(fresh):
            fresh = self._without_duplicates(seq, start, start + len(fresh))
        data = data[len(found) * key.width :]
        self.tree.attach(place, data[: len(fresh) * key.width], fresh)
        return start + len(fresh) == end

    def _place(self, seq: Sequence, key: ContentKey, start: int) -> Place | None:
        """Return the place after the first `start` blocks of a sequence, if the tree has it."""
        root = self.tree.root(key.scope, key.width)
        if not start:
            return root
        last = seq.block_table.block_ids[start - 1]
        place = None if last == NULL_BLOCK else self.tree.place_after(last)
        if place is None:
            descent = self.tree.descend(root, key.data[: start * key.width])
            place = descent.end if len(descent.found) == start else None
        return place

    def _without_duplicates(self, seq: Sequence, start: int, end: int) -> list[int]:
        """Return the blocks [start, end) as the tree shall have them, up to one that cannot be.

        Kept and still not in the tree is only what a branch that had to go left behind: that block
        is taken again. An identity that stands elsewhere in the tree is no chained one.
        """
        table, pool = seq.block_table.block_ids, self._pool
        for index in range(start, end):
            content_hash = seq.block_hashes[index]
            if pool.hash_of(table[index]) == content_hash:
                continue
            kept = pool.block_with(content_hash)
            if kept is None or kept in table[start:index] or self.tree.place_after(kept):
                return table[start:index]
            self._exchange(seq, index, [kept])
            pool.announce((content_hash,))
        return table[start:end]

    def _exchange(self, seq: Sequence, start: int, kept: list[int]) -> None:
        """Put kept blocks into a table in the places of blocks with the same content."""
        table = seq.block_table.block_ids
        places = [
            start + i
            for i, block_id in enumerate(kept)
            if table[start + i] not in (block_id, NULL_BLOCK)
        ]
        if not places:
            return
        own = [table[place] for place in places]
        theirs = [kept[place - start] for place in places]
        self._pool.exchange(seq.seq_id, own, theirs, seq.tenant)
        for place, block_id in zip(places, theirs, strict=True):
            table[place] = block_id
        self.num_exchanged += len(places)

    def _key_of(self, seq: Sequence, num_blocks: int) -> ContentKey:
        """Return the sequence's key, made to cover its first `num_blocks` blocks."""
        key = seq.content_key
        if key is None:
            key = self._empty_key(seq)
        elif len(key.data) >= num_blocks * key.width:
            return key
        known = len(key.data) // key.width
        if seq.request.simulated is None:
            size = self._block_size
            more = array("I", seq.token_ids[known * size : num_blocks * size])
        else:
            more = array("Q", seq.block_hashes[known:num_blocks])
        key = ContentKey(key.scope, key.width, key.data + more.tobytes())
        seq.content_key = key
        return key

    def _empty_key(self, seq: Sequence) -> ContentKey:
        request, scopes = seq.request, self._hasher.scopes
        if request.simulated is None:
            return ContentKey(b"tokens:" + scopes.salt_of(request), 4 * self._block_size, b"")
        salt = scopes.simulated_salt_of(request).to_bytes(8, "little")
        return ContentKey(b"simulated:" + salt, HASH_BYTES, b"")
