"""Two runs of which it is known what differs, recorded, replayed and explained."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from engine.commands import explain as command
from engine.decomposition_drill.outcome import Outcome, summary
from engine.decomposition_drill.plan import NUM_SEEDS, STALL, Case, plan_pairs
from engine.decomposition_drill.run import recorded
from engine.explain.document import explanation_document, explanation_lines
from engine.explain.explain import explain
from engine.explain.explanation import Answer
from engine.simulation.changed_run import Changed, ChangedRun, changed_requests, with_change
from engine.simulation.trace_recording import TraceRun, record_trace
from kvpulse.recording_file import write_recording

SECONDS = 600.0


@pytest.fixture(scope="module")
def calm():
    return recorded(ChangedRun(SECONDS, 1))


@pytest.fixture(scope="module")
def alike():
    return recorded(ChangedRun(SECONDS, 2))


def test_two_runs_that_differ_in_luck_alone_are_no_change(calm, alike):
    found = explain(calm, alike)

    assert found.answer is Answer.NO_CHANGE
    assert min(found.fidelity.first, found.fidelity.second) > 0.95
    assert found.num_replays == 2


def test_slower_decoding_gets_most_of_the_difference_and_all_shares_add_up(calm):
    slower = recorded(with_change(ChangedRun(SECONDS, 3), Changed.DECODE_SPEED))
    steps = []

    found = explain(calm, slower, on_progress=lambda done, of: steps.append((done, of)))

    shares = {share.group: share for share in found.shares}
    assert found.answer is Answer.EXPLAINED
    assert shares["decode_speed"].ratio > 0.7
    assert shares["decode_speed"].change.is_beyond_chance
    assert shares["settings"].ratio == 0
    assert sum(share.change.seconds for share in found.shares) == pytest.approx(
        found.change.seconds
    )
    assert found.change.seconds == pytest.approx(found.replayed.second - found.replayed.first)
    assert found.num_replays == 16  # the settings are equal
    assert steps[-1] == (32, 32)
    told = explanation_document(found)
    json.dumps(told)
    assert told["traffic_ratio"] == pytest.approx(
        shares["lengths"].ratio + shares["arrivals"].ratio
    )
    assert any(line.startswith("decode speed") for line in explanation_lines(told))


def test_a_minute_without_admissions_cannot_be_explained(calm):
    stalled = recorded(ChangedRun(SECONDS, 4), (replace(STALL, values=STALL_EARLY),))

    found = explain(calm, stalled)

    assert found.answer is Answer.CANNOT_BE_EXPLAINED
    assert found.fidelity.second < 0.85 < found.fidelity.first
    assert f"second side comes to {found.fidelity.second:.0%}" in found.why_not
    assert found.shares == ()


STALL_EARLY = {"after_seconds": "200", "for_seconds": "60"}


def test_windows_that_lost_events_or_are_too_short_are_refused(calm, alike):
    lossy = explain(replace(calm, num_lost=3), alike)
    short = explain(calm, replace(alike, window_ns=alike.window_ns // 20))

    assert lossy.answer is short.answer is Answer.CANNOT_BE_EXPLAINED
    assert "3 events of a window are lost" in lossy.why_not
    assert "needed are 200; take a longer window" in short.why_not


def test_the_command_takes_files_and_journals(calm, alike, tmp_path, capsys):
    run = ChangedRun(SECONDS, 1)
    journal = record_trace(
        list(changed_requests(run)),
        journal=tmp_path / "journal",
        run=TraceRun(config=run.config, cost=run.cost),
    ).directory
    file = tmp_path / "b.kvrec"
    write_recording(alike, file)

    code = command.main([str(journal), str(file), "--seconds", "600", "--json"])

    told = json.loads(capsys.readouterr().out)
    assert code == 0
    assert told["answer"] == "no_change"
    assert told["recorded"] == explanation_document(explain(calm, alike))["recorded"]
    assert told["text"][0].startswith("why mean TTFT changed: no change")


def test_the_command_says_what_it_cannot_read(tmp_path, capsys):
    damaged = tmp_path / "damaged"
    damaged.write_bytes(b"no recording")

    assert command.main([str(tmp_path / "none"), str(damaged)]) == 3
    assert "No such file" in capsys.readouterr().err
    assert command.main([str(damaged), str(damaged)]) == 2
    assert "no recording that can be read" in capsys.readouterr().err


def test_explaining_needs_no_torch():
    script = "import sys, engine.commands.explain; sys.exit('torch' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_a_drill_fails_when_more_than_one_in_twenty_is_wrong():
    def outcomes(num_wrong):
        ratios = [0.5] * num_wrong + [0.9] * (20 - num_wrong)
        return [
            Outcome(Case.LENGTHS, seed, Answer.EXPLAINED, ratio, 0.97)
            for seed, ratio in enumerate(ratios)
        ]

    assert summary(outcomes(1))["failed"] == []
    assert summary(outcomes(2))["failed"] == ["lengths"]
    assert summary(outcomes(2))["table"]["lengths"]["wrong_seeds"] == [0, 1]
    told = Outcome(Case.NOTHING, 1, Answer.EXPLAINED, None, 0.97)
    assert summary([told])["failed"] == ["nothing"]


def test_the_drill_has_twenty_seeds_of_each_case_and_no_run_twice():
    pairs = list(plan_pairs(NUM_SEEDS))

    assert len(pairs) == 20 * len(Case)
    seeds = [run.seed for pair in pairs for run in (pair.first, pair.second)]
    assert len(set(seeds)) == len(seeds)
