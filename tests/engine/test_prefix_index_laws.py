"""Sequences arrive, share, fork, swap and end in any order over each index: the laws hold.

A plain model follows: the memory of each slot, and counts and contents by the events alone (see
`factories_pool_world`).
"""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.engine.factories_pool_world import PoolWorld

PICK = st.integers(0, 1_000)
TOKENS = st.lists(st.integers(0, 1), min_size=1, max_size=14)
MAX_LIVE = 8
MAX_TOKENS = 20


class RandomLives(RuleBasedStateMachine):
    """Any order of acts on any of the live sequences."""

    kind = "off"

    def __init__(self):
        super().__init__()
        self.world = PoolWorld(self.kind)

    def pick(self, group, number):
        return list(group.values())[number % len(group)]

    def live(self):
        world = self.world
        return world.waiting | world.running | world.swapped

    @precondition(lambda self: len(self.live()) < MAX_LIVE)
    @rule(
        tokens=TOKENS,
        tenant=st.integers(0, 2),
        tier=st.integers(0, 1),
        adapter=st.sampled_from(["", "", "lora"]),
        at_once=st.booleans(),
    )
    def arrive(self, tokens, tenant, tier, adapter, at_once):
        seq = self.world.arrive(tokens, tenant, tier, adapter)
        if at_once:
            self.world.admit(seq)

    @precondition(lambda self: self.world.waiting)
    @rule(number=PICK)
    def admit(self, number):
        self.world.admit(self.pick(self.world.waiting, number))

    @precondition(lambda self: self.world.running)
    @rule(number=PICK, n=st.integers(1, 6), token=st.integers(0, 1))
    def run(self, number, n, token):
        seq = self.pick(self.world.running, number)
        if seq.num_tokens >= MAX_TOKENS:
            self.world.end(seq)
        else:
            self.world.run(seq, n, token)

    @precondition(lambda self: self.world.running)
    @rule(token=st.integers(0, 1))
    def run_everybody(self, token):
        for seq in self.world.all_running():
            self.world.run(seq, 3, token)

    @precondition(lambda self: self.world.running and len(self.live()) < MAX_LIVE)
    @rule(number=PICK)
    def fork(self, number):
        self.world.fork(self.pick(self.world.running, number))

    @precondition(lambda self: self.world.running)
    @rule(number=PICK)
    def preempt(self, number):
        self.world.preempt(self.pick(self.world.running, number))

    @precondition(lambda self: self.world.running)
    @rule(number=PICK)
    def swap_out(self, number):
        self.world.swap_out(self.pick(self.world.running, number))

    @precondition(lambda self: self.world.swapped)
    @rule(number=PICK)
    def swap_in(self, number):
        self.world.swap_in(self.pick(self.world.swapped, number))

    @precondition(lambda self: self.live())
    @rule(number=PICK)
    def end(self, number):
        self.world.end(self.pick(self.live(), number))

    @rule(n=st.integers(0, 8))
    def withdraw(self, n):
        pool = self.world.pool
        before, total = pool.num_available, pool.total_blocks
        assert pool.withdraw(n) == min(n, before) == total - pool.total_blocks

    @rule(n=st.integers(0, 8))
    def restore(self, n):
        total = self.world.pool.total_blocks
        assert self.world.pool.restore(n) == min(n, 24 - total)

    @rule()
    def clear(self):
        self.world.pool.clear_cached()
        assert self.world.pool.num_cached == 0

    @invariant()
    def laws_hold(self):
        self.world.check()

    def teardown(self):
        for seq in list(self.live().values()):
            self.world.end(seq)
        self.world.check()
        assert self.world.pool.num_active == 0
        assert self.world.host_pool.num_free == self.world.host_pool.total_blocks


class RandomLivesWithHashes(RandomLives):
    kind = "hash"


class RandomLivesInATree(RandomLives):
    kind = "radix"


class RandomWindows(RandomLives):
    """The same, and blocks behind a window go: what they lead to may be in use without them."""

    @precondition(lambda self: self.world.running)
    @rule(window=st.integers(1, 5))
    def slide(self, window):
        for seq in self.world.all_running():
            self.world.slide(seq, window)


class RandomWindowsWithHashes(RandomWindows):
    kind = "hash"


class RandomWindowsInATree(RandomWindows):
    kind = "radix"


SETTINGS = settings(max_examples=60, stateful_step_count=60, deadline=None)
for machine in (
    RandomLives,
    RandomLivesWithHashes,
    RandomLivesInATree,
    RandomWindowsWithHashes,
    RandomWindowsInATree,
):
    machine.TestCase.settings = SETTINGS
TestLawsWithoutAnIndex = RandomLives.TestCase
TestLawsWithHashes = RandomLivesWithHashes.TestCase
TestLawsInATree = RandomLivesInATree.TestCase
TestLawsBehindAWindowWithHashes = RandomWindowsWithHashes.TestCase
TestLawsBehindAWindowInATree = RandomWindowsInATree.TestCase


@pytest.mark.parametrize("kind", ["hash", "radix"])
def test_a_beginning_that_is_kept_is_found_by_the_next_sequence(kind):
    world = PoolWorld(kind)
    first = world.arrive([1, 0, 1, 1, 0])
    world.admit(first)
    world.run(first, 5, 0)
    world.end(first)

    hit = world.admit(world.arrive([1, 0, 1, 1, 1, 1]))

    assert len(hit.block_ids) == 2
    world.check()
