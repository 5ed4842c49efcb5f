"""Swapping sequences to the host and back: what moves, in which order, and that all is there."""

import pytest

from engine.block_moves import apply_moves
from engine.block_table import NULL_BLOCK
from engine.pool_results import AllocationRefusal
from engine.runner import BlockMove, MoveKind, StepPlan
from tests.engine.factories_pool_world import Memory, PoolWorld

OUT, IN, COPY = MoveKind.SWAP_OUT, MoveKind.SWAP_IN, MoveKind.COPY


def running(world, tokens, *, computed=None, **fields):
    """Return a running sequence that has computed all but the last of its tokens, or so many."""
    seq = world.arrive(tokens, **fields)
    world.admit(seq)
    left = (len(tokens) if computed is None else computed) - seq.num_computed_tokens
    world.run(seq, left, 1)
    return seq


def test_swapping_out_copies_what_is_computed_and_frees_the_rest_unmoved():
    world = PoolWorld("off")
    seq = running(world, [1, 0, 1, 1, 0, 0, 1], computed=3)
    plan = StepPlan(0)

    result = world.swapper.swap_out(seq, plan)

    assert plan.block_moves == [BlockMove(OUT, 0, 0), BlockMove(OUT, 1, 1)]
    assert result.num_blocks == 2
    assert sum(result.freed) == 4
    assert seq.host_block_ids == [0, 1]
    assert (seq.num_computed_tokens, seq.num_slots, len(seq.block_table)) == (3, 0, 0)
    assert world.swapper.level(seq) == 4


def test_swapping_in_allocates_for_all_tokens_and_gives_the_host_blocks_back():
    world = PoolWorld("off")
    seq = running(world, [1, 0, 1, 1, 0])
    world.swap_out(seq)
    plan = StepPlan(0)

    assert world.swapper.swap_in(seq, plan) is None

    assert [move.kind for move in plan.block_moves] == [IN] * 3
    assert (seq.num_computed_tokens, seq.num_slots, seq.host_block_ids) == (5, 6, [])
    assert world.host_pool.num_free == world.host_pool.total_blocks


def test_a_return_without_room_is_refused_and_changes_nothing():
    world = PoolWorld("off", num_blocks=4)
    seq = running(world, [1, 0, 1, 1, 0])
    world.swap_out(seq)
    world.pool.allocate(9, 2)
    plan = StepPlan(0)

    assert world.swapper.swap_in(seq, plan) == AllocationRefusal(needed=3, free=2, cached=0)
    assert plan.block_moves == []
    assert seq.host_block_ids == [0, 1, 2]
    assert world.host_pool.num_active == 3


def test_a_host_without_room_cannot_take_a_sequence():
    world = PoolWorld("off", num_host_blocks=2)

    assert world.swapper.can_take(running(world, [1, 0, 1], computed=3))
    assert not world.swapper.can_take(running(world, [1, 0, 1, 1, 0], computed=5))


def test_a_shared_block_is_copied_out_and_stays_with_the_other():
    world = PoolWorld("off")
    seq = running(world, [1, 0, 1, 1])
    child = world.fork(seq)

    world.swap_out(child)
    world.check()

    assert world.pool.num_active == 2
    assert world.host_pool.num_active == 2
    world.swap_in(child)
    world.check()
    assert not set(child.block_table.block_ids) & set(seq.block_table.block_ids)


@pytest.mark.parametrize("kind", ["hash", "radix"])
def test_what_the_gpu_still_keeps_comes_back_without_a_copy(kind):
    world = PoolWorld(kind)
    seq = running(world, [1, 0, 1, 1, 0])
    world.swap_out(seq)
    assert world.pool.num_cached == 2
    plan = StepPlan(0)

    world.swapper.swap_in(seq, plan)

    assert len(plan.block_moves) == 1, "the last block is not full, so only the host has it"
    assert world.swapper.num_found == 2


@pytest.mark.parametrize("kind", ["hash", "radix"])
def test_what_came_back_by_a_copy_is_found_by_others_again(kind):
    world = PoolWorld(kind)
    seq = running(world, [1, 0, 1, 1, 0])
    world.swap_out(seq)
    world.pool.clear_cached()
    world.swap_in(seq)
    world.run(seq, 1, 1)

    hit = world.admit(world.arrive([1, 0, 1, 1, 0, 0]))

    assert hit.block_ids == seq.block_table.block_ids[:2]
    world.check()


def test_entries_that_slid_out_of_a_window_stay_null():
    world = PoolWorld("off")
    seq = running(world, [1, 0, 1, 1, 0, 0])
    world.slide(seq, 3)
    assert seq.block_table.block_ids[0] == NULL_BLOCK
    num_null = seq.block_table.num_null

    world.swap_out(seq)
    assert world.host_pool.num_active == 3 - num_null
    assert world.swapper.level(seq) == 4 - num_null
    world.swap_in(seq)

    assert seq.block_table.block_ids[:num_null] == [NULL_BLOCK] * num_null
    world.check()


def test_a_sequence_that_ends_while_swapped_gives_its_host_blocks_back():
    world = PoolWorld("hash")
    seq = running(world, [1, 0, 1])
    world.swap_out(seq)

    world.end(seq)

    assert world.host_pool.num_active == 0
    world.check()


def test_the_batch_tiers_cached_blocks_are_evicted_first():
    world = PoolWorld("hash", num_blocks=6)
    interactive = running(world, [1, 1, 1], tier=0)
    batch = running(world, [0, 0, 0], tier=1)
    first, second = interactive.block_table.block_ids[0], batch.block_table.block_ids[0]
    world.end(interactive)
    world.end(batch)

    world.pool.allocate(9, 5)

    assert world.pool.cached_blocks() == [first], "used longer ago, but not by the batch tier"
    assert second not in world.pool.hashes()


def moves_of(*moves):
    return [BlockMove(*move) for move in moves]


class Steps(Memory):
    """Memory that also notes the batches it was asked to move."""

    def __init__(self):
        super().__init__(8, 8)
        self.gpu = [[f"g{block}"] for block in range(8)]
        self.host = [[f"h{block}"] for block in range(8)]
        self.batches = []

    def _move(self, sources, targets, pairs):
        self.batches.append(list(pairs))
        Memory._move(sources, targets, pairs)


def test_moves_run_in_the_order_of_decision_whatever_they_read_and_write():
    steps = Steps()

    apply_moves(
        steps,
        moves_of(
            (OUT, 1, 5),  # 1 is given up,
            (COPY, 2, 1),  # taken as the target of a copy,
            (COPY, 1, 3),  # which is copied on,
            (COPY, 0, 1),  # and overwritten;
            (IN, 5, 2),  # the first content comes back elsewhere,
            (OUT, 2, 5),  # and leaves again,
            (IN, 5, 4),
        ),
    )

    assert [slots[0] for slots in steps.gpu] == ["g0", "g0", "g1", "g2", "g1", "g5", "g6", "g7"]
    assert steps.host[5] == ["g1"]


def test_neighbours_that_do_not_meet_are_one_batch():
    steps = Steps()

    apply_moves(
        steps,
        moves_of(
            (OUT, 1, 1), (OUT, 2, 2), (COPY, 3, 4), (COPY, 3, 5), (COPY, 6, 3), (IN, 0, 0),
            (IN, 1, 0),
        ),
    )  # fmt: skip

    assert steps.batches == [
        [(1, 1), (2, 2)],
        [(3, 4), (3, 5)],
        [(6, 3)],  # writes what the batch before reads
        [(0, 0)],
        [(1, 0)],  # writes what the one before wrote
    ]


def test_no_moves_ask_nothing():
    steps = Steps()
    apply_moves(steps, [])
    assert steps.batches == []
