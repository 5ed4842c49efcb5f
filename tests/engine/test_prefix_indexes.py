"""The same work over each prefix index: same laws; what is found is what differs."""

from itertools import pairwise

import pytest

from engine.clock import VirtualClock
from engine.config import EngineConfig
from engine.open_engine import JournalSettings, open_engine
from engine.policy.scheduling_policy import PreemptionPolicy
from engine.prefix_index.opening import open_prefix_index
from engine.prefix_index.radix_index import RadixIndex
from engine.request import Request, SimulatedContent
from engine.runner import RunnerDescription
from engine.sequence import Sequence
from engine.simulation.simulated_run import Simulation
from engine.simulation.simulated_runner import SimulatedRunner
from tests.engine.factories_branching import BLOCK, branching_workload
from tests.engine.factories_ledger import PlainLedger
from tests.engine.factories_pool_world import HASHES, PoolWorld

KINDS = ("off", "hash", "radix")


def simulate(kind, requests, folder=None, **settings):
    """Run requests to their end; return the engine and where it was recorded."""
    config = EngineConfig(
        total_blocks=800,
        block_size=BLOCK,
        max_batch=16,
        max_queue=10_000,
        max_context=8_192,
        prefix_index=kind,
        **settings,
    )
    clock = VirtualClock()
    journal = folder and JournalSettings(folder, wall_clock=clock.now_ns)
    engine, recorder = open_engine(config, SimulatedRunner(clock), clock=clock, journal=journal)
    step = engine.step
    countdown = [0]

    def checked_step():
        events = step()
        countdown[0] += 1
        if countdown[0] % 50 == 0:
            check(engine)
        return events

    engine.step = checked_step
    Simulation(engine, clock, requests).run(lambda progress: True)
    check(engine)
    engine.close()
    return engine, recorder.directory if recorder else None


def check(engine):
    engine.check()
    if isinstance(engine._cache, RadixIndex):
        engine._cache.check()
        engine._cache.check_ways()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("preemption", [PreemptionPolicy.RECOMPUTE, PreemptionPolicy.SWAP])
def test_what_is_recorded_keeps_the_laws_with_each_index(kind, preemption, tmp_path):
    requests = branching_workload(num_requests=60)

    engine, directory = simulate(
        kind, requests, tmp_path, preemption=preemption, host_blocks=400, token_budget=1_024
    )

    ledger = PlainLedger(in_order=kind != "radix").read(directory)
    accounts = engine.accounts()
    assert dict(ledger.events) == {kind: n for kind, n in accounts.acts.items() if n}
    assert sum(accounts.finished_by_reason.values()) == len(requests)
    assert accounts.active_blocks == 0


def test_on_a_branching_workload_the_tree_finds_more():
    """A batch-tier sequence is the last to use an inner block; several compute the same at once.

    The table of hashes evicts such blocks before what stands on them, and keeps content behind
    duplicates that nobody holds: it is there and cannot be found.
    """
    requests = branching_workload(num_requests=300)
    ratios, reachable = {}, {}
    for kind in ("hash", "radix"):
        engine, _ = simulate(kind, requests)
        accounts = engine.accounts()
        ratios[kind] = accounts.prefix_hit_tokens / accounts.prefix_queried_tokens
        reachable[kind] = reachable_ratio(engine, requests)

    assert ratios["radix"] > ratios["hash"] + 0.02, ratios
    assert reachable["radix"] == 1.0
    assert reachable["hash"] < 0.97, reachable


def reachable_ratio(engine, requests):
    """Return the part of the prompts' kept blocks before which all others are kept too."""
    pool = engine._pool
    before = {}
    for timed in requests:
        hashes = timed.request.simulated.block_hashes
        before[hashes[0]] = None
        before |= {content: earlier for earlier, content in pairwise(hashes)}
    kept = [content for content in before if pool.block_with(content) is not None]

    def is_reachable(content):
        while content is not None and pool.block_with(content) is not None:
            content = before[content]
        return content is None

    return sum(map(is_reachable, kept)) / len(kept)


def runner_with(**fields):
    return RunnerDescription("test", "m", "fp32", 1, (), 0, 4_096, **fields)


@pytest.mark.parametrize("kind", ["hash", "radix"])
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ({"tenant": "acme"}, {"tenant": "other"}),
        ({"tenant": ""}, {"tenant": "acme"}),
        ({"adapter": ""}, {"adapter": "lora"}),
        ({"adapter": "lora"}, {"adapter": "other-lora"}),
        ({"tenant": "a", "adapter": "b"}, {"tenant": "b", "adapter": "a"}),
    ],
)
@pytest.mark.parametrize("simulated", [False, True])
def test_nothing_is_shared_across_tenants_or_adapters(kind, ours, theirs, simulated):
    world = PoolWorld(kind)

    def request(fields):
        if simulated:
            return Request(simulated=SimulatedContent(5, 4, (11, 12)), **fields)
        return Request((1, 2, 3, 4, 5), **fields)

    def sequence(seq_id, fields):
        seq = Sequence(seq_id, request(fields), block_size=2)
        world.index.identify_prompt(seq)
        return seq

    first = sequence(1, ours)
    first.block_table.block_ids += world.pool.allocate(1, 3)
    world.index.begin(first, 0)
    first.num_computed_tokens = 5
    world.index.offer(first)

    assert len(world.index.lookup(sequence(2, ours)).block_ids) == 2
    other = sequence(3, theirs)
    assert world.index.lookup(other).block_ids == []
    assert not set(first.block_hashes) & set(other.block_hashes)


@pytest.mark.parametrize("kind", ["hash", "radix"])
@pytest.mark.parametrize("simulated", [False, True])
def test_identities_differ_with_mask_and_window(kind, simulated):
    def hashes(**fields):
        world = PoolWorld(kind)
        index = open_prefix_index(
            kind, world.pool, block_size=2, runner=runner_with(**fields), hashes=HASHES
        )
        simulation = SimulatedContent(4, 4, (11, 12)) if simulated else None
        seq = Sequence(1, Request((1, 2, 3, 4), simulated=simulation), block_size=2)
        index.identify_prompt(seq)
        if isinstance(index, RadixIndex):
            scopes.add(index._key_of(seq, 2).scope)
        return tuple(seq.block_hashes)

    scopes = set()
    seen = {
        hashes(),
        hashes(sliding_window=64),
        hashes(sliding_window=128),
        hashes(mask="prefix"),
        hashes(mask="prefix", sliding_window=64),
    }

    assert len(seen) == 5
    assert len(scopes) == (5 if kind == "radix" else 0)


def test_ordinary_identities_are_those_of_the_tenant_alone():
    world = PoolWorld("hash")
    seq = Sequence(1, Request((1, 2, 3, 4), tenant="acme"), block_size=2)

    world.index.identify_prompt(seq)

    salt = HASHES.tenant_salt("acme")
    assert seq.block_hashes == HASHES.chain_hashes((1, 2, 3, 4), 2, salt)
