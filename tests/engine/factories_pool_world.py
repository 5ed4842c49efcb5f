"""A world of sequences over a pool, an index and a host tier, with memory that can be read back.

Each slot of memory holds the whole beginning that its token stands for: scope and tokens up to it.
So whatever is shared, copied, exchanged or swapped, a sequence reads its own beginning or not.
"""

from collections import Counter
from itertools import count

from engine.block_moves import apply_moves
from engine.block_pool import BlockPool
from engine.block_table import NULL_BLOCK, blocks_for
from engine.forks.table_growth import TableGrowth
from engine.pool_results import AllocationRefusal
from engine.prefix_index.opening import open_prefix_index
from engine.prefix_index.radix_index import RadixIndex
from engine.request import Request
from engine.runner import StepPlan
from engine.sequence import Sequence
from engine.sliding_window import SlidingWindow
from engine.swapping import Swapper
from engine.table_span import TableSpan
from kvpulse.events import FreeOutcome
from kvpulse.identity import KeyedHashes

BLOCK_SIZE = 2
HASHES = KeyedHashes(bytes(32))
TENANTS = ("", "acme", "other")


class EventLedger:
    """Stands in for a Recorder, and follows counts and contents by what it is told alone."""

    def __init__(self):
        self.counts = {False: Counter(), True: Counter()}
        self.named = {}
        self.swapped = Counter()

    def allocate(self, owner, ids, tenant=0, host=False):
        for block in ids:
            assert not self.counts[host][block]
            assert host or block not in self.named, "evicted before it is given out"
            self.counts[host][block] = 1

    def share(self, owner, ids, count, tenant=0, host=False):
        for block in ids:
            self.counts[host][block] += 1
            assert self.counts[host][block] == count

    def free(self, owner, ids, count, outcome, tenant=0, host=False):
        for block in ids:
            self.counts[host][block] -= 1
            assert self.counts[host][block] == count
            assert outcome != FreeOutcome.REFUSED
            kept = not host and block in self.named
            expected = FreeOutcome.TO_CACHE if kept else FreeOutcome.TO_FREE
            assert outcome == (FreeOutcome.HELD if count else expected)

    def cache(self, owner, ids, hashes, tenant=0):
        for block, content_hash in zip(ids, hashes, strict=True):
            assert self.counts[False][block]
            assert block not in self.named
            self.named[block] = content_hash

    def evict(self, ids, reason=1, owner=0, tenant=0):
        for block in ids:
            assert not self.counts[False][block]
            del self.named[block]

    def copy_on_write(self, owner, pairs, tenant=0):
        self.swapped["copies"] += len(pairs) // 2

    def swap_out(self, owner, pairs, tenant=0):
        self.swapped["out"] += len(pairs) // 2
        assert all(self.counts[False][block] for block in pairs[::2])
        assert all(self.counts[True][block] for block in pairs[1::2])

    def swap_in(self, owner, pairs, tenant=0):
        self.swapped["in"] += len(pairs) // 2
        assert all(self.counts[True][block] for block in pairs[::2])
        assert all(self.counts[False][block] for block in pairs[1::2])


class Memory:
    """What each slot of each block holds, on the gpu and on the host."""

    def __init__(self, num_blocks, num_host_blocks):
        self.gpu = [[None] * BLOCK_SIZE for _ in range(num_blocks)]
        self.host = [[None] * BLOCK_SIZE for _ in range(num_host_blocks)]

    def copy_blocks(self, pairs):
        self._move(self.gpu, self.gpu, pairs)

    def swap_out(self, pairs):
        self._move(self.gpu, self.host, pairs)

    def swap_in(self, pairs):
        self._move(self.host, self.gpu, pairs)

    @staticmethod
    def _move(sources, targets, pairs):
        held = [sources[source].copy() for source, _ in pairs]
        for (_, target), slots in zip(pairs, held, strict=True):
            targets[target] = slots


class PoolWorld:
    """Does with sequences what scheduler and runner do, one act at a time."""

    def __init__(self, kind, *, num_blocks=24, num_host_blocks=10):
        self.ledger = EventLedger()
        self.pool = BlockPool(num_blocks, recorder=self.ledger)
        self.host_pool = BlockPool(num_host_blocks, recorder=self.ledger, host=True)
        self.index = open_prefix_index(kind, self.pool, block_size=BLOCK_SIZE, hashes=HASHES)
        self.swapper = Swapper(
            self.pool, self.host_pool, TableSpan(BLOCK_SIZE), self.ledger, self.index
        )
        self.growth = TableGrowth(self.pool, recorder=self.ledger)
        self.memory = Memory(num_blocks, num_host_blocks)
        self.waiting, self.running, self.swapped = {}, {}, {}
        self.slid = False  # whether any table has slid out of a window
        self._numbers = count(1)

    def arrive(self, tokens, tenant=0, tier=0, adapter=""):
        request = Request(tuple(tokens), tenant=TENANTS[tenant], tier=tier, adapter=adapter)
        seq = Sequence(next(self._numbers), request, block_size=BLOCK_SIZE, tenant=tenant)
        self.index.identify_prompt(seq)
        self.waiting[seq.seq_id] = seq
        return seq

    def admit(self, seq):
        """Let a waiting sequence run if the pool has room for all its tokens; return the hit."""
        hit = self.index.lookup(seq)
        needed = blocks_for(seq.num_tokens, BLOCK_SIZE)
        if needed - hit.num_active > self.pool.num_available:
            return None
        del self.waiting[seq.seq_id]
        self.running[seq.seq_id] = seq
        table = seq.block_table.block_ids
        if hit.block_ids:
            self.pool.share(seq.seq_id, hit.block_ids, table, seq.tenant)
        answer = self.pool.allocate(seq.seq_id, needed - len(hit.block_ids), seq.tenant)
        assert not isinstance(answer, AllocationRefusal), "room was counted"
        table += answer
        seq.num_computed_tokens = len(hit.block_ids) * BLOCK_SIZE
        seq.num_slots = len(table) * BLOCK_SIZE
        self.index.begin(seq, len(hit.block_ids))
        return hit

    def run(self, seq, n, token):
        """Compute up to `n` tokens, and append one if the last was reached; False without room."""
        n = min(n, seq.num_tokens - seq.num_computed_tokens)
        plan = StepPlan(0)
        if self.growth.reach(seq, n, plan) is not None:
            return False
        apply_moves(self.memory, plan.block_moves)
        for position in range(seq.num_computed_tokens, seq.num_computed_tokens + n):
            block, slot = divmod(seq.block_table.slot_of(position), BLOCK_SIZE)
            self.memory.gpu[block][slot] = self.beginning(seq, position)
        seq.num_computed_tokens += n
        if seq.num_computed_tokens >= seq.next_hash_at:
            self.index.offer(seq)
        if seq.num_computed_tokens == seq.num_tokens:
            seq.token_ids.append(token)
            seq.num_tokens += 1
        return True

    def fork(self, seq):
        child = Sequence(next(self._numbers), seq.request, block_size=BLOCK_SIZE, tenant=seq.tenant)
        child.token_ids, child.num_tokens = seq.token_ids.copy(), seq.num_tokens
        child.num_computed_tokens, child.num_slots = seq.num_computed_tokens, seq.num_slots
        table = child.block_table
        table.num_null = seq.block_table.num_null
        table.block_ids += [NULL_BLOCK] * table.num_null
        self.pool.share(child.seq_id, seq.block_table.held_ids, table.block_ids, seq.tenant)
        child.block_hashes, child.content_key = seq.block_hashes.copy(), seq.content_key
        child.num_hashed_blocks, child.next_hash_at = seq.num_hashed_blocks, seq.next_hash_at
        self.running[child.seq_id] = child
        return child

    def preempt(self, seq):
        del self.running[seq.seq_id]
        self.pool.free(seq.seq_id, seq.block_table.give_up(), seq.tenant, seq.tier)
        seq.num_computed_tokens = seq.num_slots = 0
        self.waiting[seq.seq_id] = seq

    def swap_out(self, seq):
        if not self.swapper.can_take(seq):
            return False
        plan = StepPlan(0)
        self.swapper.swap_out(seq, plan)
        apply_moves(self.memory, plan.block_moves)
        self.swapped[seq.seq_id] = self.running.pop(seq.seq_id)
        return True

    def swap_in(self, seq):
        plan = StepPlan(0)
        if self.swapper.swap_in(seq, plan) is not None:
            return False
        apply_moves(self.memory, plan.block_moves)
        self.running[seq.seq_id] = self.swapped.pop(seq.seq_id)
        return True

    def end(self, seq):
        for group in (self.waiting, self.running, self.swapped):
            group.pop(seq.seq_id, None)
        if seq.block_table.block_ids:
            self.pool.free(seq.seq_id, seq.block_table.give_up(), seq.tenant, seq.tier)
        self.swapper.drop(seq)

    def slide(self, seq, window):
        """Give back what lies behind a window."""
        self.slid = True
        SlidingWindow(TableSpan(BLOCK_SIZE, (window,)), self.pool).slide(seq)

    def all_running(self):
        return list(self.running.values())

    @staticmethod
    def beginning(seq, position):
        """Return what the slot of a token has to hold."""
        scope = (seq.request.tenant, seq.request.adapter)
        return scope, tuple(seq.token_ids[: position + 1])

    def check(self):
        """Hold pools, tables, events, tree and memory against each other."""
        self.pool.check()
        self.host_pool.check()
        if isinstance(self.index, RadixIndex):
            self.index.check()
            if not self.slid:
                self.index.check_ways()
        held, hosted, by_tenant = Counter(), Counter(), {}
        for seq in self.running.values():
            held.update(seq.block_table.held_ids)
            for block in seq.block_table.held_ids:
                by_tenant.setdefault(seq.tenant, set()).add(block)
            self._check_content(seq)
        for seq in self.swapped.values():
            hosted.update(block for block in seq.host_block_ids if block != NULL_BLOCK)
        assert +self.ledger.counts[False] == held
        assert +self.ledger.counts[True] == hosted
        assert dict(enumerate(self.pool.counts)) == {
            block: held[block] for block in range(len(self.pool.counts))
        }
        assert self.ledger.named == self.pool.hashes()
        active = {tenant: n for tenant, n in self.pool.active_by_tenant.items() if n}
        assert active == {tenant: len(blocks) for tenant, blocks in by_tenant.items()}
        assert self.ledger.swapped["out"] == self.swapper.num_swapped_out
        assert self.ledger.swapped["in"] == self.swapper.num_swapped_in

    def _check_content(self, seq):
        start = seq.block_table.num_null * BLOCK_SIZE
        for position in range(start, seq.num_computed_tokens):
            block, slot = divmod(seq.block_table.slot_of(position), BLOCK_SIZE)
            assert self.memory.gpu[block][slot] == self.beginning(seq, position)
