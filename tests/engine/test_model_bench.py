"""`kvpulse bench engine`, on the random model."""

import json

import pytest

from engine.commands import bench_engine, bench_model, bench_simulated
from engine.commands.bench_model import BenchError


@pytest.mark.slow
def test_every_promised_figure_is_measured_and_positive(capsys, monkeypatch):
    few_rounds = bench_simulated.measure
    monkeypatch.setattr(bench_simulated, "measure", lambda: few_rounds(rounds=3))

    code = bench_engine.main(["--json", "--model", "random", "--repeat", "1", "--seed", "5"])

    printed = capsys.readouterr()
    figures = json.loads(printed.out)
    assert code == 0
    assert "seed 5" in printed.err
    for name in (
        "output_tokens_per_second",
        "output_tokens_per_cpu_second",
        "output_tokens_per_second_2_threads",
        "output_tokens_per_cpu_second_2_threads",
        "sequence_steps_per_cpu_second",
    ):
        assert figures[name] > 0, name
    assert {"record_us_per_step_16", "record_us_per_step_64"} <= figures.keys()


def test_a_missing_model_is_said_and_ends_with_three(capsys, tmp_path):
    code = bench_engine.main(["--model", str(tmp_path / "none.gguf")])

    assert code == 3
    assert "none.gguf" in capsys.readouterr().err


def test_a_model_that_answers_otherwise_in_a_batch_is_not_timed(monkeypatch):
    # Stands in for a runner whose batched answers are wrong.
    answers = iter([[[1], [2]], [[1]], [[3]]])
    monkeypatch.setattr(bench_model, "_answers", lambda *_, **__: next(answers))

    with pytest.raises(BenchError, match="one by one"):
        bench_model.run(model="random", num_threads=1, repeats=1, seed=1)
