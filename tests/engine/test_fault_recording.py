"""A recording with holes, and an engine that is killed: what is missing is known exactly."""

import json
import os
import re
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

from engine.clock import VirtualClock
from engine.faults.engine_crash import EngineCrash, EngineCrashParameters
from engine.faults.registry import FAULT_NAMES
from engine.faults.setup import FaultSetup
from kvpulse.events import Kind
from tests.agent.factories_ledger import follow
from tests.engine.factories_faults import CONFIG, lines_of, read, run_with

SECOND = 1_000_000_000
REPOSITORY = Path(__file__).parents[2]
EXAMINER = REPOSITORY / "agent" / "drill"  # holds verdicts against the truth; no judge reads it
JUDGES = ("agent", "dashboard", "grafana", "migrations")
KNOWS_THE_TRUTH = re.compile(r"faults?[-_ ]truth|TruthFile|truth\.jsonl|engine\.faults")


def test_stored_and_lost_are_together_what_was_emitted_per_kind(tmp_path):
    run = run_with(tmp_path, "drop_events:drop_seconds=4,keep_seconds=8")

    emitted = {kind: n for kind, n in run.recorded.accounts.acts.items() if n}
    stored, lost = run.written(), run.told_lost()
    assert dict(stored + lost) == emitted
    assert sum(lost.values()) == run.recorded.not_written > 500
    assert {Kind.ALLOCATE, Kind.FREE, Kind.STEP, Kind.ARRIVE, Kind.FINISH} <= set(lost)


def test_the_ledger_counts_the_loss_and_its_audits_hold_on_both_sides_of_it(tmp_path):
    run = run_with(tmp_path, "drop_events:drop_seconds=4,keep_seconds=8")

    told = run.told_lost()
    counted = [0] * 64
    for delta in run.stored.deltas:
        for code, n in enumerate(delta.lost):
            counted[code] += int(n)
    assert {Kind(code): n for code, n in enumerate(counted) if n} == dict(told)
    assert run.stored.failures == []
    assert run.leaked() == set()


def test_nothing_is_written_in_the_stretches_that_the_truth_names(tmp_path):
    run = run_with(tmp_path, "drop_events:drop_seconds=4,keep_seconds=8,seed=5")

    times = [
        int(record["ts_ns"]) for batch in read(run.recorded.directory) for record in batch.records
    ]
    changes = [(line["t_ns"], line["recording"]) for line in run.truth]
    assert [records for _, records in changes[:4]] == [False, True, False, True]
    written = {True: 0, False: 0}
    for (begin_ns, records), (end_ns, _) in pairwise(changes):
        written[records] += sum(begin_ns < t < end_ns for t in times)
    assert written[False] == 0
    # Not in each stretch between: the next segment is reserved in real time, which may take longer.
    assert written[True] > 0


def test_everything_committed_before_a_crash_is_readable(tmp_path):
    truth = tmp_path / "truth.jsonl"
    arguments = ["-m", "kvpulse", "replay", "workload", "--simulated", "--tenants", "2"]
    arguments += ["--journal", str(tmp_path / "journal"), "--faults-truth", str(truth)]
    arguments += ["--fault", "engine_crash:after_seconds=40", "--engine", "crashing"]
    done = subprocess.run(
        [sys.executable, *arguments], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )

    assert done.returncode == -signal.SIGKILL
    assert "FAULT engine_crash: the engine kills itself now" in done.stderr
    (line,) = lines_of(truth)
    assert line["t_ns"] >= 40 * SECOND
    (stream,) = (tmp_path / "journal" / "crashing").iterdir()
    newest_ns = max(int(r["ts_ns"]) for batch in read(stream) for r in batch.records)
    assert line["t_ns"] - newest_ns < SECOND, "the last words are the last second's"
    _, stored = follow(stream)
    assert stored.failures == []
    assert all(batch.gap is None for batch in read(stream))


def test_a_crash_comes_once_its_time_has_come():
    clock, killed = VirtualClock(), []
    setup = FaultSetup(clock, CONFIG)
    fault = EngineCrash(
        setup, EngineCrashParameters(after_seconds=2), kill=lambda: killed.append(clock.now_ns())
    )

    fault.before_step()
    clock.advance(2 * SECOND)
    fault.before_step()

    assert killed == [2 * SECOND]


def test_the_truth_holds_nothing_of_prompts(tmp_path):
    run = run_with(
        tmp_path, "leak_slow:every=2", "double_free:every=2", "hog_tenant", "drop_events"
    )

    allowed = {
        "fault", "t_ns", "wall_ns", "owner", "blocks", "tenant", "requests", "prompt_tokens",
        "max_tokens", "recording",
    }  # fmt: skip
    assert set().union(*run.truth) <= allowed
    assert len(json.dumps(run.truth)) < 200 * len(run.truth)
    assert os.stat(tmp_path / "truth.jsonl").st_size > 0


def test_whoever_judges_the_engine_sees_neither_the_faults_nor_their_truth(tmp_path):
    faults = ("leak_slow:every=2", "double_free:every=2", "slow_step", "pool_shrink", "clock_step")
    run = run_with(tmp_path, *faults)
    assert {line["fault"] for line in run.truth} == {name.partition(":")[0] for name in faults}

    journal = b"".join(path.read_bytes() for path in sorted(run.recorded.directory.iterdir()))
    judges = [path for name in JUDGES for path in sorted((REPOSITORY / name).rglob("*.py"))]
    judges = [path for path in judges if not path.is_relative_to(EXAMINER)]
    told = [path for path in judges if KNOWS_THE_TRUTH.search(path.read_text())]

    assert [name for name in FAULT_NAMES if name.encode() in journal] == []
    assert b"truth" not in journal
    assert len(judges) > 50
    assert told == []
