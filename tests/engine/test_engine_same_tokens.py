"""The random torch model gives the same tokens over each prefix index, and however it swaps."""

import random

import pytest
import torch

from engine.block_pool import BlockPool
from engine.clock import SystemClock
from engine.config import EngineConfig
from engine.engine_loop import Engine
from engine.policy.scheduling_policy import PreemptionPolicy
from engine.prefix_index.opening import open_prefix_index
from engine.request import Request
from engine.runner import StepPlan
from engine.sampling_params import SamplingParams
from engine.sequence import Sequence
from engine.swapping import Swapper
from engine.table_span import TableSpan
from tests.engine.factories_model import Workload, random_model, run_engine, run_step, runner_of
from tests.engine.factories_pool_world import HASHES

KINDS = ("off", "hash", "radix")
SEED = 20_261_130


def branching_prompts(count):
    """Return prompts of 20 to 70 tokens that branch off each other, some of them twice."""
    source = random.Random(SEED)
    prompts = [[source.randrange(512) for _ in range(30)]]
    while len(prompts) < count:
        stem = source.choice(prompts)
        more = [source.randrange(512) for _ in range(source.randint(4, 24))]
        prompt = (stem[: source.randint(8, len(stem))] + more)[:70]
        prompts += [prompt] * source.choice((1, 1, 2))
    return prompts[:count]


def test_answers_of_the_torch_model_do_not_depend_on_the_index():
    workload = Workload(branching_prompts(14), 12)

    answers = {
        kind: run_engine(
            runner_of(random_model(), num_blocks=48, block_size=4),
            workload,
            prefix_index=kind,
            max_batch=6,
            token_budget=64,
        )
        for kind in KINDS
    }

    assert answers["hash"].token_ids == answers["off"].token_ids
    assert answers["radix"].token_ids == answers["off"].token_ids
    assert answers["radix"].prefix_hit_tokens > 0
    assert any(answer.preemptions for answer in answers.values()), "the pool was too large"


class TorchWorld:
    """Sequences over the random torch model, a pool and a host pool."""

    def __init__(self, kind="hash"):
        self.runner = runner_of(random_model(), num_blocks=16, block_size=8, num_host_blocks=16)
        self.pool = BlockPool(16)
        self.host_pool = BlockPool(16, host=True)
        self.index = open_prefix_index(kind, self.pool, block_size=8, hashes=HASHES)
        self.swapper = Swapper(self.pool, self.host_pool, TableSpan(8), index=self.index)

    def start(self, seq_id, tokens):
        seq = Sequence(
            seq_id, Request(tuple(tokens), SamplingParams(temperature=0.0)), block_size=8
        )
        self.index.identify_prompt(seq)
        seq.block_table.block_ids += self.pool.allocate(seq_id, -(-seq.num_tokens // 8))
        seq.num_slots = len(seq.block_table) * 8
        self.index.begin(seq, 0)
        return seq

    def step(self, seqs, moves=()):
        for seq in seqs:
            if seq.num_computed_tokens == seq.num_slots:
                seq.block_table.block_ids += self.pool.allocate(seq.seq_id, 1)
                seq.num_slots += 8
        run_step(self.runner, seqs, block_moves=moves)
        for seq in seqs:
            if seq.num_computed_tokens >= seq.next_hash_at:
                self.index.offer(seq)

    def content(self, seq):
        """Return the bytes of what is computed of a sequence, on the gpu."""
        table = seq.block_table.block_ids
        kv = self.runner.kv
        parts = [tensor[table].flatten(0, 1) for tensor in (*kv.keys, *kv.values)]
        return [part[: seq.num_computed_tokens].clone() for part in parts]


def prompts():
    draw = torch.Generator().manual_seed(5)
    return [torch.randint(0, 512, (n,), generator=draw).tolist() for n in (19, 26)]


@pytest.mark.parametrize("kind", ["off", "hash", "radix"])
def test_generation_with_swaps_is_generation_without_to_the_bit(kind):
    plain, swapping = TorchWorld(kind), TorchWorld(kind)
    expected = [plain.start(i + 1, prompt) for i, prompt in enumerate(prompts())]
    got = [swapping.start(i + 1, prompt) for i, prompt in enumerate(prompts())]
    for step in range(20):
        moves = []
        if step % 3 == 1:
            moves = swap_there_and_back(swapping, got[step % 2], got[1 - step % 2], step)
        plain.step(expected)
        swapping.step(got, moves)

    assert [seq.token_ids for seq in got] == [seq.token_ids for seq in expected]
    for ours, theirs in zip(got, expected, strict=True):
        for part, other in zip(swapping.content(ours), plain.content(theirs), strict=True):
            assert torch.equal(part, other)
    assert swapping.swapper.num_swapped_in > 20
    swapping.pool.check()


def swap_there_and_back(world, first, second, step):
    """Swap both out, and both in again into other blocks, in one plan."""
    plan = StepPlan(step)
    if step % 2:
        world.pool.clear_cached()
    for seq in (first, second):
        world.swapper.swap_out(seq, plan)
    world.pool.clear_cached()  # so that everything has to be copied
    spare = world.pool.allocate(99, 3)
    for seq in (second, first):
        assert world.swapper.swap_in(seq, plan) is None
    world.pool.free(99, spare)
    return plan.block_moves


@pytest.mark.parametrize("kind", ["off", "hash", "radix"])
def test_an_engine_that_swaps_gives_the_tokens_of_one_with_room(kind):
    draw = torch.Generator().manual_seed(7)
    lengths = (40, 33, 50, 21, 44, 37)
    drawn = [torch.randint(0, 512, (n,), generator=draw).tolist() for n in lengths]
    workload = Workload(drawn, 40)

    def run(num_blocks, **settings):
        runner = runner_of(random_model(), num_blocks=num_blocks, block_size=8, num_host_blocks=80)
        return run_engine(runner, workload, prefix_index=kind, max_batch=6, **settings)

    ample = run(80)
    swapping = run(32, host_blocks=80, preemption=PreemptionPolicy.SWAP, watermark_ratio=0.0)

    assert ample.preemptions == 0
    assert swapping.preemptions > 2
    assert swapping.token_ids == ample.token_ids


def test_content_is_moved_even_in_a_pass_that_runs_nobody():
    """The only sequence gives way to nobody: its blocks are free, so they must be copied now."""
    prompt = torch.randint(0, 512, (20,), generator=torch.Generator().manual_seed(3)).tolist()
    request = Request(tuple(prompt), SamplingParams(max_tokens=30, ignore_eos=True))

    def run(*, squeezed):
        runner = runner_of(random_model(), num_blocks=12, block_size=8, num_host_blocks=12)
        config = EngineConfig(
            total_blocks=12,
            block_size=8,
            host_blocks=12,
            preemption=PreemptionPolicy.SWAP,
            prefix_index="off",
        )
        engine = Engine(config, runner, clock=SystemClock())
        engine.submit(request)
        tokens = [event.token_id for _ in range(3) for event in engine.step()]
        if squeezed:
            taken = engine._pool.allocate(99, engine._pool.num_available)
            while not engine.idle:
                tokens += [event.token_id for event in engine.step()]
            for keys, values in zip(runner.kv.keys, runner.kv.values, strict=True):
                keys.zero_()
                values.zero_()
            engine._pool.free(99, taken)
        while engine.has_work:
            tokens += [event.token_id for event in engine.step()]
        assert engine.accounts().preemptions == squeezed
        return tokens

    assert run(squeezed=True) == run(squeezed=False)
