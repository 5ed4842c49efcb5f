"""`kvpulse bench emit` prints the figures that it promises; ratios stay near their targets."""

import json

import pytest

from kvpulse import bench_emit
from kvpulse.command import main
from kvpulse.emitter_choice import is_built

OF_C = ("one_c_ns", "admit_c_ns", "sixty_four_c_ns", "one_c_over_bare")
KEYS = ("bare_ns", "one_ns", "sixty_four_ns", "rotation_ms_4096", "rotation_ms_65536")


def test_the_figures_are_printed_as_json(capsys, monkeypatch):
    monkeypatch.setattr(bench_emit, "ROUNDS", 2)
    monkeypatch.setattr(bench_emit, "CALLS", 500)
    monkeypatch.setattr(bench_emit, "ROTATIONS", 2)

    assert main(["bench", "emit", "--json"]) == 0

    figures = json.loads(capsys.readouterr().out)
    assert all(figures[key] > 0 for key in KEYS)
    assert figures["one_over_bare"] == pytest.approx(
        figures["one_ns"] / figures["bare_ns"], abs=0.01
    )
    assert figures["seed"] == 1
    assert all((figures[key] is not None) == is_built() for key in OF_C)


def test_figures_of_an_emitter_that_was_not_built_are_missing_and_not_zero():
    assert bench_emit._compiled({"bare": 5.0, "one": 10.0}) == dict.fromkeys(OF_C)


@pytest.mark.slow
def test_one_event_costs_little_more_than_twice_a_bare_store(monkeypatch):
    monkeypatch.setattr(bench_emit, "POOLS", ())
    # The target is 2.2 on a quiet machine; the bound leaves room for a noisy one.
    ratios = [bench_emit.measure()["one_over_bare"] for _ in range(3)]

    assert min(ratios) <= 2.5


@pytest.mark.slow
@pytest.mark.skipif(not is_built(), reason="the C emitter was not built: no C compiler here")
def test_the_c_emitter_takes_a_fraction_of_a_bare_store(monkeypatch):
    monkeypatch.setattr(bench_emit, "POOLS", ())
    # 0.27 and 0.7 on a quiet machine: 0.07 and 0.18 us, where 0.2 and 0.5 us are asked for.
    best = min((bench_emit.measure() for _ in range(3)), key=lambda figures: figures["one_c_ns"])

    assert best["one_c_over_bare"] <= 0.6
    assert best["sixty_four_c_ns"] / best["bare_ns"] <= 2
