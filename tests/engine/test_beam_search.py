"""Beam search over the paged cache gives what one without a cache gives."""

import pytest

from engine.forks.beam_choice import choose
from engine.forks.hypotheses import Hypotheses, score_of
from engine.runner import Candidate
from engine.sampling_params import SamplingParams
from kvpulse.events import FinishReason, Kind
from tests.engine.factories_beams import (
    plain_beam_search,
    requests_of,
    run_requests,
    seeded_prompt,
)
from tests.engine.factories_model import random_model, runner_of

STOPS = tuple(range(5, 512, 8))


def sampling_of(**settings):
    return SamplingParams(
        **({"max_tokens": 10, "n": 2, "beam_width": 3, "ignore_eos": True} | settings)
    )


def assert_same(found, expected):
    assert [answer.token_ids for answer in found] == [a.token_ids for a in expected]
    assert [answer.reason for answer in found] == [a.reason for a in expected]
    assert [a.total for a in found] == pytest.approx([a.total for a in expected], abs=1e-3)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"stop_token_ids": STOPS},
        {"stop_token_ids": STOPS, "early_stopping": True, "length_penalty": 0.5},
        {"stop_token_ids": STOPS, "length_penalty": 2.0, "n": 3},
        {"stop_token_ids": STOPS, "length_penalty": 0.0, "n": 1, "beam_width": 5},
        {"beam_width": 1, "n": 1},
        {"max_tokens": 1},
    ],
)
def test_a_search_finds_what_one_without_a_cache_finds(settings):
    sampling = sampling_of(**settings)
    prompts = [seeded_prompt(seed, length) for seed, length in ((1, 10), (2, 13), (3, 4))]

    found, accounts = run_requests(
        runner_of(random_model(), block_size=4, num_blocks=200), requests_of(prompts, sampling)
    )

    for answers, prompt in zip(found, prompts, strict=True):
        assert_same(answers, plain_beam_search(prompt, sampling))
    assert accounts.preemptions == 0
    if sampling.beam_width > 1 and sampling.max_tokens > 1:
        assert accounts.acts[Kind.FORK] == 3 * (sampling.beam_width - 1)
        assert accounts.acts[Kind.COPY_ON_WRITE] > 0


def test_stop_tokens_end_some_answers_and_the_length_others():
    sampling = sampling_of(stop_token_ids=STOPS, n=3)
    prompts = [seeded_prompt(seed, 8) for seed in range(6)]

    found, _ = run_requests(runner_of(random_model()), requests_of(prompts, sampling))

    reasons = {answer.reason for answers in found for answer in answers}
    assert reasons == {FinishReason.STOP, FinishReason.LENGTH}


@pytest.mark.parametrize("prefix_index", ["off", "hash", "radix"])
def test_a_search_goes_the_same_way_through_preemptions(prefix_index):
    sampling = sampling_of(max_tokens=12, stop_token_ids=STOPS)
    prompts = [seeded_prompt(seed, 10) for seed in (1, 2, 3)]

    found, accounts = run_requests(
        runner_of(random_model(), block_size=4),
        requests_of(prompts, sampling),
        total_blocks=20,
        watermark_ratio=0.0,
        token_budget=9,
        max_batch=9,
        prefix_index=prefix_index,
    )

    assert accounts.preemptions > 0
    for answers, prompt in zip(found, prompts, strict=True):
        assert_same(answers, plain_beam_search(prompt, sampling))


def candidates(*rows):
    return [[Candidate(token_id, logprob) for token_id, logprob in row] for row in rows]


def test_the_best_extensions_of_all_beams_go_on():
    rows = candidates([(7, -0.1), (8, -2.0)], [(7, -0.5), (9, -0.6)])

    choice = choose([-1.0, -1.0], rows, width=2, stop_ids=frozenset())

    assert [(e.parent, e.token_id) for e in choice.going_on] == [(0, 7), (1, 7)]
    assert choice.going_on[1].total == -1.5
    assert choice.ended == []


def test_a_stop_token_ends_a_beam_only_among_the_best():
    rows = candidates([(2, -0.1), (8, -0.2), (9, -0.3), (2, -9.0)])

    choice = choose([0.0], rows, width=2, stop_ids=frozenset({2}))

    assert [e.token_id for e in choice.going_on] == [8, 9]
    assert [e.total for e in choice.ended] == [-0.1]


def test_a_search_that_stop_tokens_narrow_still_has_enough_answers():
    rows = candidates([(2, -0.1), (3, -0.2), (4, -0.3), (9, -9.0)])

    choice = choose([0.0], rows, width=2, stop_ids=frozenset({2, 3, 4}))

    assert [e.token_id for e in choice.going_on] == [9]
    assert len(choice.going_on) + len(choice.ended) >= 2


def test_the_length_penalty_decides_between_short_and_long():
    assert score_of(-2.0, 2, 1.0) == -1.0
    assert score_of(-2.0, 2, 0.0) == -2.0
    assert score_of(-3.0, 6, 1.0) > score_of(-2.0, 2, 1.0)
    assert score_of(-3.0, 6, 0.0) < score_of(-2.0, 2, 0.0)


def hypotheses_of(*totals, early_stopping):
    kept = Hypotheses(sampling_of(beam_width=2, n=1, early_stopping=early_stopping))
    for total in totals:
        kept.add([1, 2], [total / 2, total / 2], FinishReason.STOP)
    return kept


def test_a_search_settles_when_no_beam_can_overtake():
    assert not hypotheses_of(-1.0, early_stopping=True).settled(-50.0, 3)
    assert hypotheses_of(-1.0, -2.0, early_stopping=True).settled(-0.1, 3)
    assert not hypotheses_of(-1.0, -2.0, early_stopping=False).settled(-2.9, 3)
    assert hypotheses_of(-1.0, -2.0, early_stopping=False).settled(-3.0, 3)


def test_the_best_answers_are_kept_in_order():
    kept = hypotheses_of(-3.0, -1.0, -2.0, early_stopping=False)

    assert [hypothesis.score for hypothesis in kept.best()] == [-0.5]
