"""What the torch runner draws for the samples of one request."""

import dataclasses

import pytest
import torch

from engine.model.sampling import best_candidates, logprobs_of, sample, sample_several
from engine.policy.scheduling_policy import PreemptionPolicy
from engine.sampling_params import SamplingParams
from kvpulse.events import Kind
from tests.engine.factories_beams import requests_of, run_requests, seeded_prompt
from tests.engine.factories_model import random_model, runner_of
from tests.engine.factories_plain_model import plain_logits


def answers_of(sampling, *, prompt=None, **settings):
    prompt = prompt or seeded_prompt(4, 10)
    runner = runner_of(random_model(), block_size=4, num_blocks=100)
    (answers,), accounts = run_requests(runner, requests_of([prompt], sampling), **settings)
    return answers, accounts


def test_greedy_samples_are_all_the_same():
    answers, _ = answers_of(SamplingParams(max_tokens=6, n=3))

    assert len(answers) == 3
    assert len({tuple(answer.token_ids) for answer in answers}) == 1


def test_drawn_samples_differ_and_repeat_for_their_seed():
    sampling = SamplingParams(max_tokens=8, n=4, temperature=1.5, seed=3)

    first, _ = answers_of(sampling)
    again, _ = answers_of(sampling, prefix_caching=False)

    assert [a.token_ids for a in first] == [a.token_ids for a in again]
    assert len({tuple(answer.token_ids) for answer in first}) == 4


def test_a_sample_is_what_its_own_seed_draws_alone():
    answers, _ = answers_of(SamplingParams(max_tokens=8, n=3, temperature=1.5, seed=30))

    for index, answer in enumerate(answers):
        alone, _ = answers_of(SamplingParams(max_tokens=8, temperature=1.5, seed=30 + index))
        assert answer.token_ids == alone[0].token_ids


def test_samples_without_a_seed_differ_from_each_other():
    answers, _ = answers_of(SamplingParams(max_tokens=8, n=4, temperature=2.0))

    assert len({tuple(answer.token_ids) for answer in answers}) == 4


@pytest.mark.parametrize(
    "settings",
    [{}, {"host_blocks": 30, "preemption": PreemptionPolicy.SWAP, "prefix_index": "off"}],
)
@pytest.mark.parametrize("window", [None, 7])
def test_preempted_samples_draw_what_they_would_have_drawn(settings, window):
    sampling = SamplingParams(max_tokens=12, n=4, temperature=1.5, seed=8, ignore_eos=True)
    requests = requests_of([seeded_prompt(seed, 10) for seed in (1, 2)], sampling)
    config, weights = random_model()
    model = dataclasses.replace(config, sliding_window=window), weights

    calm, _ = run_requests(runner_of(model, block_size=4), requests)
    pressed, accounts = run_requests(
        runner_of(model, block_size=4, num_host_blocks=settings.get("host_blocks", 0)),
        requests,
        total_blocks=18,
        watermark_ratio=0.0,
        **settings,
    )

    assert accounts.preemptions > 0
    assert bool(accounts.acts.get(Kind.SWAP_IN)) == bool(settings)
    assert [[a.token_ids for a in answers] for answers in pressed] == [
        [a.token_ids for a in answers] for answers in calm
    ]


def test_logprobs_are_the_models_own_whatever_the_temperature():
    prompt = seeded_prompt(4, 10)
    sampling = SamplingParams(max_tokens=5, n=2, temperature=1.5, seed=1, logprobs=True)

    answers, _ = answers_of(sampling, prompt=prompt)

    for answer in answers:
        logprobs = plain_logits([*prompt, *answer.token_ids]).log_softmax(-1)
        expected = sum(float(logprobs[9 + i][t]) for i, t in enumerate(answer.token_ids))
        assert answer.total == pytest.approx(expected, abs=1e-3)


def test_candidates_are_the_likeliest_tokens_in_order():
    logits = torch.randn(3, 50, generator=torch.Generator().manual_seed(2))

    rows = best_candidates(logits, 4)

    expected = logits.log_softmax(-1).sort(dim=-1, descending=True)
    for row, ids, logprobs in zip(rows, expected.indices, expected.values, strict=True):
        assert [candidate.token_id for candidate in row] == ids[:4].tolist()
        found = [candidate.logprob for candidate in row]
        assert found == pytest.approx(logprobs[:4].tolist(), abs=1e-5)


def test_a_small_vocabulary_gives_as_many_candidates_as_it_has():
    assert [len(row) for row in best_candidates(torch.zeros(2, 3), 8)] == [3, 3]


def test_logprobs_of_ragged_rows_stay_with_their_row():
    logits = torch.randn(3, 9, generator=torch.Generator().manual_seed(5))

    found = logprobs_of(logits, [[1], [2, 3, 4], [0, 8]])

    table = logits.log_softmax(-1)
    for row, (ids, values) in enumerate(zip([[1], [2, 3, 4], [0, 8]], found, strict=True)):
        assert values == pytest.approx(table[row][ids].tolist(), abs=1e-5)


def test_several_draws_from_one_row_are_the_single_draws():
    logits = torch.randn(1, 64, generator=torch.Generator().manual_seed(6))
    how = SamplingParams(temperature=1.0, top_p=0.9, top_k=40)

    several = sample_several(logits[0], how, seeds=range(20), position=7)

    single = [sample(logits, [how], seeds=[seed], positions=[7])[0] for seed in range(20)]
    assert several == single
    assert len(set(several)) > 3
