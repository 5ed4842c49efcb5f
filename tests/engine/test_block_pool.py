"""The pool's acts, one by one and in random order."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from engine.block_pool import BlockPool
from engine.errors import PoolError
from engine.pool_results import AllocationRefusal, FreeResult
from kvpulse.events import EvictReason, FreeOutcome, Kind, block_weight


class Notes:
    """Stands in for a Recorder and keeps what it was told."""

    def __init__(self):
        self.acts = []

    def __getattr__(self, name):
        def note(*arguments):
            self.acts.append((name, *(list(a) if isinstance(a, list) else a for a in arguments)))

        return note


def cached_pool(total=4):
    """Return a pool full of cached blocks; block i keeps content 100 + i, 0 the longest unused."""
    notes = Notes()
    pool = BlockPool(total, recorder=notes)
    ids = pool.allocate(1, total)
    pool.cache(1, ids, [100 + i for i in ids])
    pool.free(1, ids[::-1])
    notes.acts.clear()
    return pool, notes


def test_fresh_blocks_come_in_order_of_their_ids():
    pool = BlockPool(8)

    assert pool.allocate(1, 3) == [0, 1, 2]
    assert pool.allocate(2, 1) == [3]


def test_an_allocation_that_does_not_fit_takes_nothing_and_says_what_there_was():
    pool, notes = cached_pool(4)
    pool.allocate(2, 1)
    notes.acts.clear()

    assert pool.allocate(3, 4) == AllocationRefusal(needed=4, free=0, cached=3)
    assert notes.acts == []


def test_the_longest_unused_cached_block_is_evicted_first_and_said_so():
    pool, notes = cached_pool(4)

    assert pool.allocate(7, 1) == [0]
    assert notes.acts == [
        ("evict", [0], EvictReason.REUSED, 7, 0),
        ("allocate", 7, [0], 0),
    ]
    assert pool.block_with(100) is None


def test_many_evictions_are_one_record_in_order_of_age():
    pool, notes = cached_pool(4)

    assert pool.allocate(7, 3, 5) == [0, 1, 2]
    assert notes.acts == [
        ("evict", [0, 1, 2], EvictReason.REUSED, 7, 5),
        ("allocate", 7, [0, 1, 2], 5),
    ]


def test_a_cached_block_that_is_shared_again_is_evicted_last():
    pool, _ = cached_pool(4)
    table = []
    pool.share(2, [0], table)
    pool.free(2, table)

    assert pool.allocate(3, 4) == [1, 2, 3, 0]


def test_sharing_states_one_run_per_resulting_count_in_table_order():
    pool, notes = cached_pool(4)
    pool.share(2, [0, 1], [])
    notes.acts.clear()
    table = []

    pool.share(3, [0, 1, 2, 3], table)

    assert table == [0, 1, 2, 3]
    assert notes.acts == [("share", 3, [0, 1], 2, 0), ("share", 3, [2, 3], 1, 0)]


def test_freeing_a_shared_block_keeps_it_until_the_last_owner():
    pool, _ = cached_pool(4)
    first, second = [], []
    pool.share(2, [0, 1], first)
    pool.share(3, [0, 1], second)

    assert pool.free(2, first) == FreeResult(held=2, to_cache=0, to_free=0, refused=0)
    assert pool.num_active == 2
    assert pool.free(3, second) == FreeResult(held=0, to_cache=2, to_free=0, refused=0)
    assert pool.num_active == 0


def test_the_tail_of_a_table_is_freed_first_so_that_it_is_evicted_first():
    pool = BlockPool(4, recorder=(notes := Notes()))
    table = pool.allocate(1, 4)
    pool.cache(1, table[:3], [11, 12, 13])
    notes.acts.clear()

    pool.free(1, table)

    assert notes.acts == [
        ("free", 1, [3], 0, FreeOutcome.TO_FREE, 0),
        ("free", 1, [2, 1, 0], 0, FreeOutcome.TO_CACHE, 0),
    ]
    assert sorted(pool.allocate(2, 2)) == [2, 3], "the free one and the tail, not the head"
    assert table == [], "the table is given back with its blocks"


def test_a_double_free_is_refused_recorded_and_served_on():
    pool = BlockPool(4, recorder=(notes := Notes()))
    pool.allocate(1, 2)
    pool.free(1, [0])
    notes.acts.clear()

    assert pool.free(1, [0, 1]) == FreeResult(held=0, to_cache=0, to_free=1, refused=1)
    assert notes.acts == [
        ("free", 1, [1], 0, FreeOutcome.TO_FREE, 0),
        ("free", 1, [0], 0, FreeOutcome.REFUSED, 0),
    ]
    pool.check()


def test_a_block_named_twice_in_one_free_is_freed_once():
    pool = BlockPool(4)
    pool.allocate(1, 2)

    assert pool.free(1, [0, 1, 1]) == FreeResult(held=0, to_cache=0, to_free=2, refused=1)
    pool.check()
    assert pool.num_free == 4


def test_content_that_is_kept_already_is_not_kept_twice():
    pool = BlockPool(4, recorder=(notes := Notes()))
    ids = pool.allocate(1, 3)
    pool.cache(1, ids[:1], [11])
    notes.acts.clear()

    assert pool.cache(1, ids[1:], [11, 12]) == 1
    assert notes.acts == [("cache", 1, [2], [12], 0)]
    assert pool.cache(1, ids, [11, 11, 12]) == 0


def test_clearing_forgets_every_cached_block():
    pool, notes = cached_pool(4)

    assert pool.clear_cached() == 4
    assert notes.acts == [("evict", [0, 1, 2, 3], EvictReason.CLEARED, 0, 0)]
    assert pool.num_free == 4


def test_an_audit_counts_blocks_references_and_runs_by_itself():
    pool = BlockPool(8)
    first = pool.allocate(1, 5)
    pool.cache(1, first[:1], [11])
    pool.share(2, [1], [])
    pool.free(1, [0, 3])

    audit = pool.audit()

    assert (audit.total, audit.active, audit.cached, audit.free) == (8, 3, 1, 4)
    assert audit.sum_of_counts == 4
    weights = 2 * block_weight(1) + block_weight(2) + block_weight(4)
    assert audit.checksum == weights % 2**64
    assert audit.largest_free_run == 3


@pytest.mark.parametrize("spoil", ["count", "free", "index"])
def test_a_recount_raises_where_the_structures_disagree(spoil):
    pool, _ = cached_pool(4)
    pool.allocate(1, 1)
    if spoil == "count":
        pool._counts[0] = 0
    elif spoil == "free":
        pool._free.append(0)
    else:
        pool._block_of[103] = 2

    with pytest.raises(PoolError):
        pool.check()


def test_watchers_are_told_when_a_block_of_theirs_changes_state():
    pool, _ = cached_pool(4)
    pool.watchers = {100: {7}, 102: {7, 8}, 999: {9}}

    pool.share(1, [1], [])
    assert pool.touched == set()
    pool.share(1, [0], table := [])
    assert pool.touched == {7}
    pool.free(1, table)
    pool.allocate(2, 2)
    assert pool.touched == {7, 8}


class RandomActs(RuleBasedStateMachine):
    """Owners allocate, share, free and free twice in any order; a plain model says what holds."""

    tables = Bundle("tables")

    def __init__(self):
        super().__init__()
        self.pool = BlockPool(12)
        self.model = {}  # table number to blocks
        self.content = {}  # block to hash, as long as it is kept
        self.next_hash = 1

    @rule(target=tables, n=st.integers(1, 6))
    def allocate(self, n):
        available = self.pool.num_available
        answer = self.pool.allocate(1, n)
        if isinstance(answer, AllocationRefusal):
            assert n > available
            return self.keep([])
        for block in answer:
            assert not any(block in ids for ids in self.model.values())
            self.content.pop(block, None)
        return self.keep(answer)

    def keep(self, ids):
        number = len(self.model)
        self.model[number] = list(ids)
        return number

    @rule(number=tables, from_block=st.integers(0, 5))
    def cache(self, number, from_block):
        ids = [b for b in self.model[number][from_block:] if b not in self.content]
        hashes = list(range(self.next_hash, self.next_hash + len(ids)))
        self.next_hash += len(ids)
        assert self.pool.cache(1, ids, hashes) == len(ids)
        self.content |= dict(zip(ids, hashes, strict=True))

    @rule(target=tables, pick=st.sets(st.integers(0, 11), max_size=5))
    def share(self, pick):
        ids = sorted(block for block in pick if block in self.content)
        table = []
        self.pool.share(1, ids, table)
        assert table == ids
        return self.keep(ids)

    @rule(number=consumes(tables))
    def free(self, number):
        ids = self.model[number]
        self.model[number] = []
        result = self.pool.free(1, list(ids))
        assert sum(result) == len(ids)
        assert result.refused == 0

    @rule(block=st.integers(0, 11))
    def free_what_nobody_holds(self, block):
        if not any(block in ids for ids in self.model.values()):
            assert self.pool.free(1, [block]).refused == 1

    @rule()
    def clear(self):
        self.pool.clear_cached()
        held = {block for ids in self.model.values() for block in ids}
        self.content = {block: h for block, h in self.content.items() if block in held}

    @invariant()
    def laws_hold(self):
        pool = self.pool
        pool.check()
        held = [block for ids in self.model.values() for block in ids]
        assert sum(pool.counts) == len(held)
        assert pool.num_active == len(set(held))
        assert pool.num_active + pool.num_cached + pool.num_free == 12
        assert pool.num_cached == len(set(self.content) - set(held))
        assert pool.hashes() == self.content
        acts = pool.acts
        refused = acts[Kind.FREE] - (acts[Kind.ALLOCATE] + acts[Kind.SHARE] - len(held))
        assert refused >= 0


RandomActs.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestRandomActs = RandomActs.TestCase
