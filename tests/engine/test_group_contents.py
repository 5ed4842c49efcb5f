"""Whatever the engine does with blocks, every KV group reads its sequence's own tokens in them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.config import EngineConfig
from engine.engine_loop import Engine
from engine.policy.scheduling_policy import PreemptionPolicy, SchedulingPolicy
from engine.request import Request
from engine.sampling_params import SamplingParams
from tests.engine.factories_engine import run_until_done
from tests.engine.factories_policy import WINDOWS, with_windows
from tests.engine.factories_readable_memory import ReadableRunner

ENGINES = st.fixed_dictionaries(
    {
        "total_blocks": st.integers(16, 30),
        "token_budget": st.sampled_from([6, 11, 64]),
        "prefix_index": st.sampled_from(["hash", "radix", "off"]),
        "preemption": st.sampled_from(list(PreemptionPolicy)),
        "windows": st.sampled_from(WINDOWS),
    }
).map(with_windows)
REQUESTS = st.lists(
    st.tuples(
        st.integers(0, 2),  # which tokens it begins with
        st.integers(1, 34),  # prompt
        st.integers(1, 20),  # output
        st.sampled_from([{}, {}, {}, {"n": 3}, {"beam_width": 2}]),
        st.integers(-1, 1),  # priority
        st.integers(0, 3),  # steps before the next arrival
        st.sampled_from([None, None, None, 2, 7]),  # cancel so many steps later
    ),
    min_size=2,
    max_size=12,
)


def engine_of(window=None, groups=(), **chosen):
    runner = ReadableRunner(window=window, groups=groups)
    config = EngineConfig(
        block_size=4,
        max_batch=5,
        host_blocks=24,
        policy=SchedulingPolicy(aging_ns=10**9, swap_min_tokens=6),
        **chosen,
    )
    return Engine(config, runner, clock=runner._clock), runner


@settings(max_examples=60, deadline=None)
@given(chosen=ENGINES, requests=REQUESTS)
def test_every_group_reads_its_own_tokens_after_whatever_happened(chosen, requests):
    engine, runner = engine_of(**chosen)
    cancels = {}
    for start, prompt, output, sampling, priority, pause, cancel_after in requests:
        tokens = tuple((start + position // 3) % 5 for position in range(prompt))
        asked = SamplingParams(max_tokens=output, ignore_eos=True, **sampling)
        admission = engine.submit(Request(tokens, asked, priority=priority))
        if cancel_after is not None:
            cancels.setdefault(engine.num_steps + cancel_after, []).append(admission.seq_id)
        for _ in range(pause):
            engine.step()
            engine.check()
            for seq_id in cancels.pop(engine.num_steps, ()):
                engine.cancel(seq_id)
    run_until_done(engine)

    assert engine._pool.num_active == 0
    assert runner.num_read or not engine.num_steps


@pytest.mark.parametrize(
    ("windows", "total_blocks"),
    [
        ({}, 24),
        ({"window": 14}, 20),
        ({"groups": (None, 6)}, 40),
        ({"groups": (None, None, 1)}, 60),
        ({"groups": (None, 3, 3)}, 60),
    ],
)
def test_a_crowd_shares_gives_way_swaps_and_forks_in_every_kind_of_model(windows, total_blocks):
    engine, runner = engine_of(
        **windows, total_blocks=total_blocks, token_budget=24, preemption=PreemptionPolicy.SWAP
    )
    for number in range(14):
        tokens = tuple((number % 2 + position // 3) % 5 for position in range(9 + number))
        sampling = SamplingParams(max_tokens=24, ignore_eos=True, n=1 + number % 2)
        engine.submit(Request(tokens, sampling))
        engine.step()
        engine.check()
    run_until_done(engine)

    assert engine._scheduler.swapper.num_swapped_in > 0
    assert engine._scheduler.tables.num_copied > 0
    assert engine.accounts().prefix_hit_tokens > 0
    assert runner.num_read > 2_000
