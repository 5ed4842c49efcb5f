"""Blocks taken out of service and given back; tiers, tenants and references as the pool counts."""

import pytest

from engine.block_pool import BlockPool
from engine.block_table import NULL_BLOCK, BlockTable
from engine.clock import VirtualClock
from engine.config import EngineConfig
from engine.errors import PoolError
from engine.open_engine import JournalSettings, open_engine
from engine.policy.scheduling_policy import PreemptionPolicy
from engine.policy.victims import VictimChoice, Why
from engine.pool_results import AllocationRefusal
from engine.runner import StepPlan
from engine.simulation.simulated_run import Simulation
from engine.simulation.simulated_runner import SimulatedRunner
from kvpulse.events import FinishReason
from tests.agent.factories_ledger import follow
from tests.engine.factories_branching import BLOCK, branching_workload
from tests.engine.factories_engine import make_engine, make_request
from tests.engine.factories_pool_world import EventLedger


def cached_pool(total=6, *, tiers=(0,) * 6):
    """Return a pool full of cached blocks, block 0 the longest unused, freed by these tiers."""
    pool = BlockPool(total, recorder=(ledger := EventLedger()))
    ids = pool.allocate(1, total)
    pool.cache(1, ids, [100 + i for i in ids])
    for block_id, tier in zip(ids, tiers, strict=True):
        pool.free(1, [block_id], 0, tier)
    return pool, ledger


def test_free_blocks_are_withdrawn_before_cached_ones_and_active_ones_never():
    pool, ledger = cached_pool()
    held = pool.allocate(2, 1)
    pool.free(2, pool.allocate(2, 2))
    assert (pool.num_active, pool.num_cached, pool.num_free) == (1, 3, 2)

    assert pool.withdraw(3) == 3
    assert (pool.total_blocks, pool.num_active, pool.num_cached, pool.num_free) == (3, 1, 2, 0)
    assert pool.withdraw(10) == 2
    assert (pool.total_blocks, pool.num_active, pool.num_available) == (1, 1, 0)

    pool.check()
    assert pool.counts[held[0]] == 1
    assert ledger.named == {}


def test_an_audit_of_a_smaller_pool_adds_up_over_its_old_ids():
    pool = BlockPool(8)
    held = pool.allocate(1, 8)
    pool.free(1, held[:6])
    pool.withdraw(4)

    audit = pool.audit()

    assert (audit.total, audit.active, audit.cached, audit.free) == (4, 2, 0, 2)
    assert len(pool.counts) == 8, "a keyframe states each id there ever was"
    assert pool.allocate(2, 3) == AllocationRefusal(needed=3, free=2, cached=0)


def test_restored_blocks_are_free_again_and_given_out_last():
    pool = BlockPool(6)
    pool.withdraw(4)
    first = pool.allocate(1, 1)

    assert pool.restore(3) == 3
    assert pool.restore(9) == 1
    assert pool.restore(1) == 0
    assert pool.total_blocks == 6
    assert pool.allocate(1, 1)[0] == first[0] + 1, "what was never withdrawn comes first"
    assert len(pool.allocate(1, 4)) == 4
    pool.check()


def test_blocks_of_the_batch_tier_are_evicted_before_longer_unused_ones_of_others():
    pool, _ = cached_pool(tiers=(0, 1, 0, 1, 0, 0))

    assert pool.allocate(2, 1) == [1]
    assert pool.allocate(2, 3) == [3, 0, 2]
    pool.check()


def test_a_batch_block_that_somebody_else_used_since_is_no_batch_block():
    pool, _ = cached_pool(tiers=(0, 1, 0, 1, 0, 0))
    pool.share(2, [1, 0], table := [])
    pool.free(2, table, 0, 0)
    pool.check()

    assert pool.allocate(2, 6) == [3, 2, 4, 5, 0, 1]


def test_active_blocks_are_counted_by_the_tenant_that_holds_them():
    pool = BlockPool(8)
    table = pool.allocate(1, 3, 5)
    pool.cache(1, table[:2], [11, 12], 5)
    pool.share(2, table[:2], shared := [], 5)
    pool.allocate(3, 2, 6)
    assert pool.active_by_tenant == {5: 3, 6: 2}

    pool.free(1, table, 5)
    assert pool.active_by_tenant == {5: 2, 6: 2}
    pool.free(2, shared, 5)
    assert pool.active_by_tenant == {5: 0, 6: 2}
    pool.check()


def test_what_slid_out_of_a_window_is_not_freed_again():
    pool = BlockPool(4)
    table = BlockTable(block_size=16)
    table.block_ids = [NULL_BLOCK, NULL_BLOCK, *pool.allocate(1, 2)]
    table.num_null = 2

    freed = pool.free(1, table.give_up())

    assert (freed.to_free, freed.refused) == (2, 0)
    assert len(table) == 0
    assert pool.num_free == 4


def test_a_block_outlives_its_first_owner_until_nobody_holds_it():
    pool = BlockPool(4)
    table = pool.allocate(1, 2)
    pool.share(2, table, other := [])
    pool.free(2, [other.pop()])
    assert pool.outlived == set(), "the sharer left, not the first owner"

    pool.free(1, table)
    assert pool.outlived == set(other)
    pool.free(2, other)
    assert pool.outlived == set()


@pytest.mark.parametrize("spoil", ["tenant", "withdrawn", "references", "outlived"])
def test_a_recount_raises_where_a_sum_is_wrong(spoil):
    pool, _ = cached_pool()
    pool.allocate(1, 1)
    if spoil == "tenant":
        pool.active_by_tenant[3] += 1
    elif spoil == "withdrawn":
        pool._withdrawn.append(5)
    elif spoil == "references":
        pool.num_shared += 1
    else:
        pool.outlived.add(5)

    with pytest.raises(PoolError):
        pool.check()


@pytest.mark.parametrize("kind", ["off", "hash", "radix"])
def test_the_agent_follows_a_pool_that_shrinks_and_grows_over_each_index(kind, tmp_path):
    config = EngineConfig(
        total_blocks=500,
        block_size=BLOCK,
        max_batch=16,
        max_queue=1_000,
        max_context=8_192,
        prefix_index=kind,
        preemption=PreemptionPolicy.SWAP,
        host_blocks=300,
    )
    clock = VirtualClock()
    journal = JournalSettings(tmp_path, wall_clock=clock.now_ns)
    engine, recorder = open_engine(config, SimulatedRunner(clock), clock=clock, journal=journal)
    step, sizes = engine.step, set()

    def resizing_step():
        if engine.num_steps % 97 == 40:
            engine._pool.withdraw(37)
        elif engine.num_steps % 97 == 90:
            engine._pool.restore(30)
        sizes.add(engine._pool.total_blocks)
        return step()

    engine.step = resizing_step
    Simulation(engine, clock, branching_workload(num_requests=60)).run(lambda progress: True)
    engine.check()
    engine.close()

    ledger, stored = follow(recorder.directory)

    assert len(sizes) > 5
    assert stored.failures == []
    assert ledger.core.totals.audits_passed > 5
    assert ledger.core.totals.laws_failed == 0


def test_a_sample_that_never_fits_again_takes_its_planned_sibling_along():
    engine = make_engine(prefix_index="off", token_budget=4, total_blocks=24)
    root = engine.submit(make_request(4, 40, n=2, ignore_eos=True)).seq_id
    for _ in range(9):
        engine.step()
    first, second = engine._scheduler.running

    def give_way(seq):
        choice = VictimChoice(seq, 0, Why.MEMORY, 2)
        engine._scheduler._preemptor.preempt(choice, StepPlan(0))

    give_way(first)
    for _ in range(4):
        engine.step()  # the first computes its tokens again, in chunks, while the second goes on
    give_way(second)
    engine._pool.withdraw(engine._pool.num_available)
    events = engine.step()
    engine.check()

    assert [(e.root, e.finish_reason) for e in events] == [(root, FinishReason.ERROR)]
    assert engine._pool.num_active == 0
