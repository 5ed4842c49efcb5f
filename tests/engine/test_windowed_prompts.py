"""A prompt longer than its window holds what window and one step need, never all of its blocks."""

from dataclasses import replace

import pytest

from engine.clock import SystemClock
from engine.config import EngineConfig
from engine.engine_loop import Engine
from engine.policy.scheduling_policy import PreemptionPolicy, SchedulingPolicy, TierPolicy
from engine.policy.victims import VictimChoice, Why
from engine.request import Request
from engine.runner import StepPlan
from engine.sampling_params import SamplingParams
from engine.server.served_model import ServedModel
from engine.table_span import TableSpan
from kvpulse.events import FinishReason, RejectReason
from tests.engine.factories_beams import (
    plain_beam_search,
    requests_of,
    run_requests,
    seeded_prompt,
    tokens_of,
)
from tests.engine.factories_engine import make_engine, make_request, run_until_done
from tests.engine.factories_plain_model import plain_logits
from tests.engine.test_sliding_window import windowed_runner

BLOCK = 4


def longest_prompt_engine(**settings):
    """Return an engine that holds 8 blocks, 32 tokens, whatever the length of a prompt."""
    chosen = {"total_blocks": 8, "max_context": 1_000, "window": 9, "token_budget": 8}
    return make_engine(**{**chosen, **settings})


@pytest.mark.parametrize("window", [1, 2, 4, 5, 9, 14])
@pytest.mark.parametrize("budget", [4, 7, 8, 13])
def test_a_span_is_what_window_and_chunk_can_touch_at_any_position(window, budget):
    span = TableSpan(BLOCK, (window,), budget)

    touched = [
        (computed + budget - 1) // BLOCK - max(computed + 1 - window, 0) // BLOCK + 1
        for computed in range(200)
    ]

    assert span.most_held == max(touched)


@pytest.mark.parametrize(("window", "budget"), [(1, 5), (9, 8), (16, 4), (6, 12)])
def test_a_prompt_many_times_the_pool_runs_in_what_its_window_needs(window, budget):
    most = TableSpan(BLOCK, (window,), budget).most_held
    engine = longest_prompt_engine(window=window, token_budget=budget, total_blocks=most)
    engine.submit(make_request(prompt_tokens=500, max_tokens=20))

    held = set()
    while engine.has_work:
        engine.step()
        engine.check()
        held.add(engine._pool.num_active)

    assert engine.accounts().finished_by_reason == {"length": 1}
    assert most - 1 <= max(held) <= most
    assert engine.accounts().preemptions == 0


def test_a_window_that_does_not_fit_is_refused_with_what_it_needs():
    engine = longest_prompt_engine(total_blocks=4)

    admission = engine.submit(make_request(prompt_tokens=500))

    assert admission.rejection.reason is RejectReason.EXCEEDS_POOL
    assert (admission.rejection.needed, admission.rejection.limit) == (5, 4)


def test_a_short_prompt_under_a_window_is_asked_for_its_own_blocks_only():
    engine = longest_prompt_engine(total_blocks=4)

    admission = engine.submit(make_request(prompt_tokens=6, max_tokens=6))

    assert admission.accepted
    assert [e.finish_reason for e in run_until_done(engine)][-1] is FinishReason.LENGTH


@pytest.mark.parametrize("preemption", list(PreemptionPolicy))
@pytest.mark.parametrize("prefix_index", ["hash", "radix", "off"])
def test_prompts_that_grow_over_a_pool_for_one_of_them_all_end(prefix_index, preemption):
    engine = longest_prompt_engine(
        total_blocks=7, prefix_index=prefix_index, preemption=preemption, host_blocks=12
    )
    for _ in range(3):
        engine.submit(make_request(prompt_tokens=4, max_tokens=40))
        engine.submit(make_request(prompt_tokens=120, max_tokens=12, prefix="abcdefgh"))

    events = run_until_done(engine)

    assert [event.finish_reason for event in events].count(FinishReason.LENGTH) == 6
    assert engine.accounts().preemptions > 0


def test_a_prompt_that_cannot_grow_lets_the_last_in_rank_give_way():
    slow_batch = SchedulingPolicy(batch=TierPolicy(step_tokens=3), batch_patience_ns=0)
    engine = longest_prompt_engine(total_blocks=6, policy=slow_batch)
    engine.submit(replace(make_request(prompt_tokens=100, max_tokens=4), tier=1))
    engine.submit(make_request(prompt_tokens=4, max_tokens=60))

    events = run_until_done(engine)

    preemptions = {(each.victim, each.beneficiary) for each in engine.latest_preemptions}
    assert (2, 1) in preemptions <= {(2, 1), (2, 0)}
    assert [e.seq_id for e in events if e.finish_reason is FinishReason.LENGTH] == [1, 2]


@pytest.mark.parametrize("prefix_index", ["hash", "radix"])
def test_of_a_kept_beginning_only_what_the_window_reaches_is_held(prefix_index):
    engine = longest_prompt_engine(total_blocks=32, prefix_index=prefix_index)
    engine.submit(make_request(prompt_tokens=40, max_tokens=1, prefix="abcdefghij"))
    run_until_done(engine)
    engine.submit(make_request(prompt_tokens=44, max_tokens=1, prefix="abcdefghij"))

    engine.step()
    engine.check()

    # 40 tokens were found. Of their 10 blocks the token at 40 sees those from position 32 on, and
    # the token itself needs one.
    assert engine.accounts().prefix_hit_tokens == 40
    assert engine._pool.num_shared == 2
    assert engine._pool.num_allocated == 10 + 1


@pytest.mark.parametrize("total_blocks", [5, 6, 25])
def test_a_windowed_model_computes_a_prompt_longer_than_its_pool_as_one_without_blocks(
    total_blocks,
):
    sampling = SamplingParams(max_tokens=8, ignore_eos=True)
    prompt = seeded_prompt(3, 60)

    (found,), _ = run_requests(
        windowed_runner(9),
        requests_of([prompt], sampling),
        total_blocks=total_blocks,
        token_budget=8,
        max_batch=4,
    )

    tokens = found[0].token_ids
    logits = plain_logits([*prompt, *tokens], window=9)[len(prompt) - 1 : -1]
    assert tokens == logits.argmax(-1).tolist()


@pytest.mark.parametrize("prefix_index", ["hash", "radix", "off"])
@pytest.mark.parametrize("token_budget", [8, 23])
def test_beams_of_a_prompt_longer_than_the_pool_come_back_after_they_gave_way(
    prefix_index, token_budget
):
    window, prompt = 7, seeded_prompt(5, 58)
    sampling = SamplingParams(max_tokens=16, n=3, beam_width=3, ignore_eos=True)
    total = 3 * TableSpan(BLOCK, (window,), token_budget).most_held
    config = EngineConfig(
        total_blocks=total,
        block_size=BLOCK,
        prefix_index=prefix_index,
        token_budget=token_budget,
        max_batch=4,
    )
    engine = Engine(config, windowed_runner(window), clock=SystemClock())
    assert engine.submit(Request(prompt_token_ids=prompt, sampling=sampling)).accepted

    events, give_way = [], [12, 14, 19, 30]
    for number in range(200):
        events += engine.step()
        engine.check()
        running = engine._scheduler.running
        if number in give_way and running:
            choice = VictimChoice(running[0], 0, Why.MEMORY, 3)
            engine._scheduler._preemptor.preempt(choice, StepPlan(number))
            engine.check()

    (found,) = tokens_of(events).values()
    expected = plain_beam_search(prompt, sampling, window=window)
    assert [a.token_ids for a in found] == [a.token_ids for a in expected]


def test_a_client_that_names_no_length_may_have_the_context_where_the_window_fits():
    def room(span, **asked):
        model = ServedModel(("m",), None, 0, max_context=900, num_blocks=8, span=span)
        return model.room(100, **{"num_sequences": 1, **asked})

    assert room(TableSpan(BLOCK, (9,), 8)) == 800
    assert room(TableSpan(BLOCK, (9,), 8), num_sequences=2) == 1
    assert room(TableSpan(BLOCK, (40,), 8)) == 1
    assert room(TableSpan(64)) == 8 * 64 - 100
