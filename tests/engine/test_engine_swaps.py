"""A whole engine on the random torch model that swaps gives the tokens of one that need not."""

import pytest
import torch

from engine.clock import SystemClock
from engine.config import EngineConfig
from engine.engine_loop import Engine
from engine.policy.scheduling_policy import PreemptionPolicy
from engine.request import Request
from engine.sampling_params import SamplingParams
from tests.engine.factories_model import Workload, random_model, run_engine, runner_of


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
