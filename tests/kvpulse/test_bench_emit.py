"""`kvpulse bench emit` prints the figures that it promises; ratios stay near their targets."""

import json

import pytest

from kvpulse import bench_emit
from kvpulse.command import main

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


@pytest.mark.slow
def test_one_event_costs_little_more_than_twice_a_bare_store(monkeypatch):
    monkeypatch.setattr(bench_emit, "POOLS", ())
    # The target is 2.2 on a quiet machine; the bound leaves room for a noisy one.
    ratios = [bench_emit.measure()["one_over_bare"] for _ in range(3)]

    assert min(ratios) <= 2.5
