"""What the drill runs, what it keeps, and recorded traffic: no engine is started."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from agent.drill.kept import KeptOutcomes
from agent.drill.outcome import Outcome
from agent.drill.scenario import SLICES, TraceSlice, Traffic, missing_slices, recorded
from agent.drill.traffic import write_trace
from agent.errors import ConfigError
from agent.triage.verdicts import Verdict
from kvpulse.command import main as kvpulse

OUTCOME = Outcome(
    "clock_step-0.6-1",
    ("clock_step",),
    0.6,
    Verdict.HEALTHY,
    false_alarms=("unknown at 70 s",),
    engine_seconds=800.0,
)
AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:03.9799600,4808,10
2023-11-16 18:17:04.0319600,3180,8
2023-11-16 18:17:05.9799600,9000,1000
"""


def test_a_recorded_slice_keeps_the_times_and_lengths_of_each_so_manieth_request(tmp_path):
    path = tmp_path / "azure.csv"
    path.write_text(AZURE, encoding="utf-8")
    traffic = Traffic(0.0, 600.0, seed=2, slice=TraceSlice(path, keep_each=2))

    write_trace(traffic, tmp_path / "trace.jsonl")

    lines = [json.loads(line) for line in (tmp_path / "trace.jsonl").read_text().splitlines()]
    told = [(x["timestamp"], x["input_length"], x["output_length"]) for x in lines]
    assert told == [(0, 4808, 10), (2000, 6000, 600)]  # the longest are cut to what fits


def test_slices_that_are_not_there_are_named(tmp_path):
    name, (file, _) = next(iter(SLICES.items()))
    (tmp_path / file).write_text(AZURE, encoding="utf-8")

    assert [each.name for each in recorded(tmp_path)] == [f"{name}-1"]
    assert missing_slices(tmp_path) == [each for each in SLICES if each != name]
    assert missing_slices(None) == list(SLICES)


def test_outcomes_are_kept_whole(tmp_path):
    kept = KeptOutcomes(tmp_path / "kept.jsonl")

    kept.add(OUTCOME)
    kept.add(replace(OUTCOME, scenario="other", seconds_to_verdict=10.0))

    assert kept.read()[OUTCOME.scenario] == OUTCOME
    assert kept.read()["other"].seconds_to_verdict == 10.0


def test_a_file_of_something_else_is_refused(tmp_path):
    path = tmp_path / "kept.jsonl"
    path.write_text('{"scenario": 1}\n', encoding="utf-8")

    with pytest.raises(ConfigError, match="that the drill itself wrote"):
        KeptOutcomes(path).read()


def test_what_was_kept_is_not_run_again_and_counts_in_the_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    KeptOutcomes(tmp_path / "kept.jsonl").add(OUTCOME)
    keep = ["--keep", str(tmp_path / "kept.jsonl")]

    code = kvpulse(
        ["drill", "--triage", "--seeds", "1", "--only", "clock_step-0.6", "--json", *keep]
    )

    answer = json.loads(capsys.readouterr().out)
    assert code == 1  # it holds a false alarm
    assert answer["matrix"] == {"clock_step": {"healthy": 1}}
    assert answer["skipped"] == list(SLICES)
    assert answer["not_run"] == []
    assert [each["run"] for each in answer["false_alarms"]] == [OUTCOME.scenario]
