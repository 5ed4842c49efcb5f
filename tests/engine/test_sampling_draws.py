"""Greedy and seeded draws."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.model.sampling import sample, uniform
from engine.sampling_params import SamplingParams

LOGITS = torch.tensor([0.0, 3.0, 1.0, 2.0, -1.0])


def draws(how, *, count=400, logits=LOGITS):
    """Draw the same row at many positions."""
    return sample(
        logits.expand(count, -1), [how] * count, seeds=[7] * count, positions=list(range(count))
    )


def test_temperature_zero_takes_the_best_logit():
    rows = torch.stack([LOGITS, LOGITS.flip(0)])

    assert sample(rows, [SamplingParams()] * 2, seeds=[1, 2], positions=[5, 5]) == [1, 3]


@pytest.mark.parametrize("temperature", [5e-324, 1e-320, 1e-200, 1e-6, 1e-4])
def test_a_temperature_near_zero_takes_the_best_logit_too(temperature):
    how = SamplingParams(temperature=temperature)

    assert {sample(LOGITS[None], [how], seeds=[s], positions=[s])[0] for s in range(20)} == {1}


def test_no_rows_give_no_tokens():
    assert sample(torch.empty(0, 5), [], seeds=[], positions=[]) == []


def test_draws_follow_the_softmax():
    drawn = draws(SamplingParams(temperature=1.0), count=4000)

    frequencies = torch.bincount(torch.tensor(drawn), minlength=5) / 4000
    assert (frequencies - LOGITS.softmax(0)).abs().max() < 0.03


def test_a_high_temperature_flattens_the_draws():
    drawn = draws(SamplingParams(temperature=100.0), count=4000)

    frequencies = torch.bincount(torch.tensor(drawn), minlength=5) / 4000
    assert (frequencies - 0.2).abs().max() < 0.03


def test_top_k_keeps_the_k_best():
    assert set(draws(SamplingParams(temperature=5.0, top_k=2))) == {1, 3}
    assert set(draws(SamplingParams(temperature=5.0, top_k=1))) == {1}


def test_top_p_keeps_the_smallest_set_that_reaches_it():
    # The softmax is 0.636, 0.234, 0.086, … in the order 1, 3, 2.
    assert set(draws(SamplingParams(temperature=1.0, top_p=0.5))) == {1}
    assert set(draws(SamplingParams(temperature=1.0, top_p=0.65))) == {1, 3}
    assert set(draws(SamplingParams(temperature=1.0, top_p=0.9))) == {1, 2, 3}


def test_a_seed_decides_the_draw_and_its_neighbours_do_not():
    how = SamplingParams(temperature=1.0)
    logits = torch.randn(6, 50, generator=torch.Generator().manual_seed(2))

    together = sample(logits, [how] * 6, seeds=list(range(6)), positions=[3] * 6)

    alone = [
        sample(logits[row : row + 1], [how], seeds=[row], positions=[3])[0] for row in range(6)
    ]
    assert together == alone


def test_another_seed_or_position_gives_other_draws():
    how = SamplingParams(temperature=5.0)
    rows = LOGITS.expand(64, -1)

    by_seed = sample(rows, [how] * 64, seeds=list(range(64)), positions=[0] * 64)
    by_position = sample(rows, [how] * 64, seeds=[0] * 64, positions=list(range(64)))

    assert len(set(by_seed)) == 5
    assert len(set(by_position)) == 5
    assert by_seed != by_position


@given(seed=st.integers(-(1 << 70), 1 << 70), position=st.integers(0, 1 << 40))
def test_uniform_numbers_lie_in_the_unit_interval_and_repeat(seed, position):
    number = uniform(seed, position)

    assert 0.0 <= number < 1.0
    assert number == uniform(seed, position)


def test_uniform_numbers_are_spread_evenly():
    numbers = torch.tensor(
        [uniform(seed, position) for seed in range(50) for position in range(80)]
    )

    assert numbers.mean().item() == pytest.approx(0.5, abs=0.02)
    assert torch.histc(numbers, bins=10, min=0, max=1).min() > 330


@given(
    logits=st.lists(st.floats(-50, 50, width=32), min_size=1, max_size=20),
    top_k=st.integers(0, 25),
    top_p=st.floats(0.01, 1.0),
    temperature=st.floats(0.01, 10.0),
    seed=st.integers(0, 1 << 63),
)
def test_every_draw_is_a_token_that_top_k_allows(logits, top_k, top_p, temperature, seed):
    how = SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p)
    row = torch.tensor([logits])

    (token_id,) = sample(row, [how], seeds=[seed], positions=[0])

    num_better = int((row[0] > row[0, token_id]).sum())
    assert num_better < (top_k or len(logits))
