"""Targets: written, held against what was measured, and silent where too little was."""

import numpy as np
import pytest

from agent.config import load_config
from agent.errors import ConfigError
from agent.rollups.histogram import Histogram
from agent.targets.attainment import attainment
from agent.targets.target import Target, parse_targets, targets_of

MS = 1_000_000
TTFT = Target("ttft", 0.99, 2.0)


def measured(*parts: tuple[int, int]) -> Histogram:
    """Return so many samples of so many ms each."""
    histogram = Histogram()
    for number, ms in parts:
        histogram.add(np.full(number, ms * MS))
    return histogram


def test_a_target_is_a_latency_a_quantile_and_a_time() -> None:
    found = parse_targets("ttft p99 2s, inter_token p95 200ms,engine-a: pool_wait p99.9 1m")

    assert found == (
        Target("ttft", 0.99, 2.0),
        Target("inter_token", 0.95, 0.2),
        Target("pool_wait", pytest.approx(0.999), 60.0, "engine-a"),  # type: ignore[arg-type]
    )
    assert [target.text for target in found] == [
        "ttft p99 2s",
        "inter_token p95 200ms",
        "pool_wait p99.9 1m",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "ttft 2s",
        "ttft p0 2s",
        "ttft p100 2s",
        "ttft p99 2",
        "ttft p99 0s",
        "speed p99 2s",
        "ttft p99 2s, ttft p95 1s",
        "a: ttft p99 2s, a: ttft p95 1s",
    ],
)
def test_what_is_no_target_is_refused_with_what_would_be(text: str) -> None:
    with pytest.raises(ConfigError, match=r"--targets: found .* accepted is targets with"):
        load_config({"targets": text}, {"HOME": "/x"})


def test_targets_may_be_a_list_in_the_file(tmp_path) -> None:
    file = tmp_path / "kvpulse.toml"
    file.write_text('[agent]\ntargets = ["ttft p99 2s", "engine-a: ttft p95 5s"]\n')

    config = load_config({"config": str(file)}, {"HOME": "/x"})

    assert config.targets == (TTFT, Target("ttft", 0.95, 5.0, "engine-a"))
    assert load_config({}, {"HOME": "/x"}).targets == ()


def test_an_engine_s_own_target_stands_before_everybody_s() -> None:
    own = Target("ttft", 0.95, 5.0, "engine-a")
    waits = Target("pool_wait", 0.99, 1.0)

    assert targets_of((waits, TTFT, own), "engine-a") == (own, waits)
    assert targets_of((waits, TTFT, own), "engine-b") == (TTFT, waits)


def test_the_share_within_and_how_fast_the_budget_is_spent() -> None:
    now = attainment(TTFT, 300, measured((180, 500), (20, 4_000)))

    assert (now.samples, now.within, now.window) == (200, 180, "5m")
    assert now.within_ratio == pytest.approx(0.9)
    assert now.burn_rate == pytest.approx(10.0)
    assert now.is_missed


def test_a_target_that_is_met_exactly_is_met() -> None:
    now = attainment(TTFT, 3_600, measured((99, 500), (1, 4_000)))

    assert now.burn_rate == pytest.approx(1.0)
    assert not now.is_missed


@pytest.mark.parametrize("number", [0, 19])
def test_too_few_samples_give_no_value_and_no_miss(number: int) -> None:
    now = attainment(TTFT, 300, measured((number, 60_000)))

    assert (now.within_ratio, now.burn_rate, now.is_missed) == (None, None, False)
