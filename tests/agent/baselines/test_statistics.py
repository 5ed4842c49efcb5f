"""The statistics against what is known of them: processes with a known memory, known intervals."""

import numpy as np
import pytest

from agent.baselines.autocorrelation import autocorrelation_time
from agent.baselines.block_bootstrap import Blocks, choose_blocks, resampled_sums
from agent.baselines.corrected_intervals import Change, holm_levels, smallest_seen, t_quantile


def remembering(rho, num, seed=3):
    source = np.random.default_rng(seed)
    values = np.zeros(num)
    for i in range(1, num):
        values[i] = rho * values[i - 1] + source.normal()
    return values


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.8])
def test_the_autocorrelation_time_of_a_known_process_is_found(rho):
    values = remembering(rho, 20_000)

    found = autocorrelation_time(values, np.ones(len(values), np.bool_))

    assert found == pytest.approx((1 + rho) / (1 - rho), rel=0.2)


def test_a_gap_neither_joins_its_sides_nor_ends_the_series():
    values = remembering(0.8, 20_000)
    counted = np.random.default_rng(1).random(len(values)) > 0.3
    values[~counted] = np.nan

    assert autocorrelation_time(values, counted) == pytest.approx(9, rel=0.25)


def test_a_constant_series_remembers_nothing():
    assert autocorrelation_time(np.full(50, 7.0), np.ones(50, np.bool_)) == 1.0


def test_a_block_is_three_autocorrelation_times_and_twenty_of_them_are_enough():
    assert choose_blocks(2.1, 140) == Blocks(7, 20)
    assert choose_blocks(2.1, 140).is_enough
    assert not choose_blocks(2.1, 139).is_enough


def test_the_bootstrap_finds_the_error_of_the_mean_of_a_series_with_memory():
    rho, num = 0.8, 20_000
    values = remembering(rho, num)
    blocks = choose_blocks((1 + rho) / (1 - rho), num)

    means = resampled_sums(values[:, None], blocks, seed=1)[:, 0] / num

    true_error = (1 / (1 - rho)) / num**0.5
    assert np.std(means) == pytest.approx(true_error, rel=0.2)
    assert means.mean() == pytest.approx(values.mean(), abs=true_error)


def test_the_same_seed_gives_the_same_draws():
    columns = np.random.default_rng(0).random((50, 3))
    blocks = choose_blocks(1.0, 50)

    assert np.array_equal(
        resampled_sums(columns, blocks, seed=5), resampled_sums(columns, blocks, seed=5)
    )


@pytest.mark.parametrize(
    ("probability", "degrees", "expected"),
    [(0.975, 20, 2.0860), (0.995, 19, 2.8609), (0.999, 38, 3.3190)],
)
def test_students_quantiles_are_those_of_the_tables(probability, degrees, expected):
    assert t_quantile(probability, degrees) == pytest.approx(expected, rel=0.01)


def test_holm_tests_the_clearest_at_the_strictest_level_and_stops_at_the_first_that_is_not():
    levels = holm_levels([0.03, 0.001, 0.9, 0.012], alpha=0.04)

    assert levels == pytest.approx([0.02, 0.01, 0.02, 0.04 / 3])


def test_an_interval_leaves_zero_out_exactly_if_its_p_value_is_below_the_level():
    for difference in (0.5, 2.0, 2.5, 3.0, 4.0):
        change = Change(difference, 1.0, 30.0)
        assert (change.half_width(0.01) < difference) == (change.p_value < 0.01)


def test_the_smallest_change_seen_is_seen_four_times_in_five():
    source = np.random.default_rng(2)
    smallest = smallest_seen(Change(0.0, 1.0, 1e6), 0.01)
    width = Change(0.0, 1.0, 1e6).half_width(0.01)

    assert np.mean(smallest + source.normal(size=20_000) > width) == pytest.approx(0.8, abs=0.02)
