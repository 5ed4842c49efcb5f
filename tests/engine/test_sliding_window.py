"""Models with a sliding window give back the blocks that no later token attends to."""

import dataclasses

import pytest

from agent.ledger.delta import RunShape
from agent.ledger.ledger import Ledger
from engine.block_table import NULL_BLOCK
from engine.clock import SystemClock, VirtualClock
from engine.config import EngineConfig
from engine.engine_loop import Engine
from engine.open_engine import JournalSettings, open_engine
from engine.policy.scheduling_policy import PreemptionPolicy
from engine.policy.victims import VictimChoice, Why
from engine.request import Request
from engine.runner import StepPlan
from engine.sampling_params import SamplingParams
from engine.simulation.simulated_runner import SimulatedRunner
from kvpulse.events import FinishReason, Kind
from kvpulse.reader import StreamReader
from tests.engine.factories_beams import (
    plain_beam_search,
    requests_of,
    run_requests,
    seeded_prompt,
    tokens_of,
)
from tests.engine.factories_engine import COST, make_request, run_until_done
from tests.engine.factories_ledger import PlainLedger
from tests.engine.factories_model import random_model, runner_of
from tests.engine.factories_plain_model import plain_logits

BLOCK = 4


def windowed_engine(window, *, total_blocks=32, **settings):
    clock = VirtualClock()
    chosen = {"block_size": BLOCK, "max_batch": 8, "watermark_ratio": 0.0, **settings}
    config = EngineConfig(total_blocks=total_blocks, **chosen)
    runner = SimulatedRunner(clock, cost=COST, sliding_window=window)
    return Engine(config, runner, clock=clock)


def only(engine):
    (seq,) = engine._scheduler.live.values()
    return seq


@pytest.mark.parametrize("window", [1, 3, 4, 5, 8, 13])
def test_a_decoding_sequence_holds_no_more_than_its_window_needs(window):
    engine = windowed_engine(window)
    engine.submit(make_request(prompt_tokens=6, max_tokens=40))

    most = 0
    while engine.has_work:
        engine.step()
        engine.check()
        most = max(most, engine._pool.num_active)

    # The prompt's own two blocks were needed by its step.
    assert most <= max(-(-(window - 1) // BLOCK) + 1, 2)


def test_what_slid_out_is_null_in_the_table_and_can_be_found_in_the_cache():
    engine = windowed_engine(5)
    engine.submit(make_request(prompt_tokens=10, max_tokens=40, prefix="ab"))
    for _ in range(4):
        engine.step()

    seq = only(engine)

    # 13 tokens are computed: the next one sees the positions from 9 on.
    assert seq.num_computed_tokens == 13
    assert seq.block_table.block_ids[:2] == [NULL_BLOCK, NULL_BLOCK]
    assert len(seq.block_table) == 4
    assert engine._pool.num_active == 2
    assert engine._pool.num_cached == 2

    engine.submit(make_request(prompt_tokens=10, prefix="ab"))
    engine.step()
    engine.check()

    assert engine.accounts().prefix_hit_tokens == 8


def test_a_preempted_sequence_computes_its_window_anew():
    engine = windowed_engine(8, total_blocks=6)
    for _ in range(3):
        engine.submit(make_request(prompt_tokens=6, max_tokens=14))

    events = run_until_done(engine)

    assert engine.accounts().preemptions > 0
    assert [event.finish_reason for event in events].count(FinishReason.LENGTH) == 3
    assert engine._pool.num_active == 0


@pytest.mark.parametrize("fields", [{"n": 3}, {"n": 2, "beam_width": 3}])
@pytest.mark.parametrize("num_steps", [1, 2, 9, 20])
def test_a_cancel_gives_back_what_forks_hold_behind_and_within_the_window(fields, num_steps):
    engine = windowed_engine(6)
    root = engine.submit(make_request(prompt_tokens=10, max_tokens=60, **fields)).seq_id
    for _ in range(num_steps):
        engine.step()
        engine.check()

    engine.cancel(root)
    engine.check()

    assert engine._pool.num_active == 0


def test_a_ledger_follows_a_window(tmp_path):
    clock = VirtualClock()
    engine, recorder = open_engine(
        EngineConfig(total_blocks=30, block_size=BLOCK, audit_interval_ns=20_000_000),
        SimulatedRunner(clock, cost=COST, sliding_window=6),
        clock=clock,
        journal=JournalSettings(tmp_path, wall_clock=clock.now_ns, segment_bytes=64 * 1024),
    )
    for n in (1, 4, 2):
        engine.submit(make_request(prompt_tokens=10, max_tokens=20, n=n))
    engine.submit(make_request(prompt_tokens=10, max_tokens=20, beam_width=3))
    run_until_done(engine)
    engine.close()

    ledger = PlainLedger(in_order=False).read(recorder.directory)

    assert dict(ledger.events) == {k: n for k, n in engine.accounts().acts.items() if n}
    assert ledger.events[Kind.COPY_ON_WRITE] > 4
    assert ledger.audits > 10
    assert not ledger.tables


def test_the_window_is_part_of_what_the_engine_says_it_runs_with(tmp_path):
    clock = VirtualClock()
    engine, recorder = open_engine(
        EngineConfig(),
        SimulatedRunner(clock, sliding_window=6),
        clock=clock,
        journal=JournalSettings(tmp_path, wall_clock=clock.now_ns),
    )
    engine.close()

    batch = StreamReader(recorder.directory, is_alive=lambda: False).read()
    ledger = Ledger(RunShape(batch.total_blocks, 0, batch.block_size))
    ledger.apply(batch)

    fingerprint = ledger.take().config
    assert (fingerprint["mask"], fingerprint["sliding_window"]) == ("causal", 6)


def test_the_window_of_a_full_attention_model_is_never_slid():
    engine = windowed_engine(None)
    engine.submit(make_request(prompt_tokens=6, max_tokens=40))

    for _ in range(30):
        engine.step()

    assert only(engine).block_table.num_null == 0


def windowed_runner(window):
    config, weights = random_model()
    model = dataclasses.replace(config, sliding_window=window), weights
    return runner_of(model, block_size=BLOCK, num_blocks=100)


@pytest.mark.parametrize("window", [3, 8, 11])
@pytest.mark.parametrize("settings", [{}, {"token_budget": 7, "max_batch": 4}])
def test_a_windowed_model_says_what_one_without_blocks_says(window, settings):
    sampling = SamplingParams(max_tokens=12, ignore_eos=True, logprobs=True)
    prompts = [seeded_prompt(seed, length) for seed, length in ((1, 5), (2, 18), (3, 9))]

    found, _ = run_requests(windowed_runner(window), requests_of(prompts, sampling), **settings)

    for (answer,), prompt in zip(found, prompts, strict=True):
        logits = plain_logits([*prompt, *answer.token_ids], window=window)[len(prompt) - 1 : -1]
        assert answer.token_ids == logits.argmax(-1).tolist()
        expected = logits.log_softmax(-1).max(-1).values.sum()
        assert answer.total == pytest.approx(float(expected), abs=1e-3)


def test_beams_under_a_window_are_those_of_a_plain_search_under_it():
    sampling = SamplingParams(max_tokens=9, n=2, beam_width=3, ignore_eos=True)
    prompt = seeded_prompt(5, 11)

    (found,), _ = run_requests(windowed_runner(6), requests_of([prompt], sampling))

    expected = plain_beam_search(prompt, sampling, window=6)
    assert [a.token_ids for a in found] == [a.token_ids for a in expected]
    assert expected != plain_beam_search(prompt, sampling)


def test_windowed_answers_survive_preemption():
    sampling = SamplingParams(max_tokens=14, ignore_eos=True)
    requests = requests_of([seeded_prompt(seed, 5) for seed in range(4)], sampling)

    calm, _ = run_requests(windowed_runner(9), requests)
    pressed, accounts = run_requests(
        windowed_runner(9), requests, total_blocks=9, watermark_ratio=0.0
    )

    assert accounts.preemptions > 0
    assert pressed == calm


@pytest.mark.parametrize("prefix_index", ["hash", "radix", "off"])
def test_beams_that_parted_behind_the_window_do_not_come_back_as_one(prefix_index):
    sampling = SamplingParams(max_tokens=24, n=4, beam_width=4, ignore_eos=True)
    prompt = seeded_prompt(5, 3)
    config = EngineConfig(total_blocks=100, block_size=BLOCK, prefix_index=prefix_index)
    engine = Engine(config, windowed_runner(6), clock=SystemClock())
    engine.submit(Request(prompt_token_ids=prompt, sampling=sampling))

    events = []
    for number in range(60):
        events += engine.step()
        if number in (16, 20):
            beam = engine._scheduler.running[0]
            choice = VictimChoice(beam, 0, Why.MEMORY, 4)
            engine._scheduler._preemptor.preempt(choice, StepPlan(number))
            engine.check()

    (found,) = tokens_of(events).values()
    expected = plain_beam_search(prompt, sampling, window=6)
    assert [a.token_ids for a in found] == [a.token_ids for a in expected]


def test_a_swapped_sequence_that_needs_little_more_than_its_window_outlives_a_shrunk_pool():
    engine = windowed_engine(
        4, total_blocks=16, host_blocks=8, preemption=PreemptionPolicy.SWAP, max_context=64
    )
    engine.submit(make_request(prompt_tokens=8, max_tokens=48))
    for _ in range(30):
        engine.step()
    choice = VictimChoice(only(engine), 0, Why.MEMORY, 1)
    engine._scheduler._preemptor.preempt(choice, StepPlan(0))

    engine._pool.withdraw(10)
    events = run_until_done(engine)

    assert events[-1].finish_reason is FinishReason.LENGTH


def test_what_slides_out_of_a_batch_request_is_evicted_before_what_others_left():
    engine = windowed_engine(4)
    engine.submit(make_request(prompt_tokens=8, max_tokens=1, prefix="ab"))
    run_until_done(engine)
    left = engine._pool.cached_blocks()
    batch = dataclasses.replace(make_request(prompt_tokens=16, max_tokens=8, prefix="wxyz"), tier=1)
    engine.submit(batch)

    for _ in range(2):
        engine.step()

    order = engine._pool._order.in_order()
    assert set(order[-len(left) :]) == set(left) < set(order)
