"""The whole demonstration: every event accounted for, leaks named, nothing left running."""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.waiting import wait_until

KEYS = {
    "events_emitted",
    "events_stored",
    "events_lost",
    "per_kind",
    "requests",
    "finished_by_reason",
    "rejected_by_reason",
    "preemptions",
    "prefix_hit_tokens",
    "cancelled",
    "seconds_with_pool_wait",
    "audits_passed",
    "audits_failed",
    "ledger_balanced",
    "active_blocks_at_end",
    "leaked_blocks",
    "refused_frees",
    "injected",
    "engine_crashed",
}


def _environment(folder: Path) -> dict[str, str]:
    """Keep journal, store and temporary files of a demonstration below one folder."""
    places = {
        "XDG_STATE_HOME": folder / "state",
        "XDG_RUNTIME_DIR": folder / "runtime",
        "TMPDIR": folder / "tmp",
    }
    for place in places.values():
        place.mkdir(exist_ok=True)
    return {**os.environ, **{name: str(place) for name, place in places.items()}}


@contextmanager
def _demo(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    log = (folder / "said").open("w")
    (folder / "agent.py").write_text("raise SystemExit('a file of the user, not ours')\n")
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "kvpulse", "demo", "--json", *arguments],
        cwd=folder,
        env=_environment(folder),
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()
        log.close()


@dataclass
class Ended:
    """What a demonstration ended with."""

    exit_code: int
    summary: dict
    said: str


def _run(folder: Path, *arguments: str) -> Ended:
    with _demo(folder, *arguments) as process:
        output, _ = process.communicate(timeout=180)
        return Ended(process.returncode, json.loads(output), (folder / "said").read_text())


def _assert_all_accounted_for(summary: dict) -> None:
    assert set(summary) == KEYS
    for kind, count in summary["per_kind"].items():
        assert count["emitted"] == count["stored"] + count["lost"], kind
    totals = [sum(n[part] for n in summary["per_kind"].values()) for part in ("emitted", "stored")]
    assert totals == [summary["events_emitted"], summary["events_stored"]]
    assert summary["events_lost"] == 0
    assert summary["audits_failed"] == 0
    assert sum(summary["finished_by_reason"].values()) == summary["requests"]
    assert sum(summary["rejected_by_reason"].values()) == summary["finished_by_reason"].get(
        "rejected", 0
    )


def _assert_shows_pressure(summary: dict) -> None:
    reasons = set(summary["rejected_by_reason"])
    assert {"context_too_long", "exceeds_pool", "queue_full"} <= reasons
    for name in ("preemptions", "prefix_hit_tokens", "cancelled", "seconds_with_pool_wait"):
        assert summary[name] >= 1, name


@pytest.mark.slow
def test_a_simulated_demo_accounts_for_every_event_and_shows_pressure(tmp_path):
    ended = _run(tmp_path, "--simulated", "--no-dashboard", "--seconds", "15")

    _assert_all_accounted_for(ended.summary)
    _assert_shows_pressure(ended.summary)
    assert ended.exit_code == 0
    assert ended.summary["audits_passed"] >= 15
    assert ended.summary["ledger_balanced"] is True
    assert ended.summary["active_blocks_at_end"] == 0
    assert ended.summary["leaked_blocks"] == []
    assert (tmp_path / "state" / "kvpulse" / "kvpulse.db").exists()
    # Everything in the journal is stored, so neither it nor the logs are left behind.
    assert list((tmp_path / "runtime" / "kvpulse").iterdir()) == []
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.slow
def test_a_leak_is_named_by_block_and_owner(tmp_path):
    truth = tmp_path / "truth.jsonl"
    faults = ("--fault", "leak_on_cancel", "--faults-truth", str(truth))
    ended = _run(tmp_path, "--simulated", "--no-dashboard", "--seconds", "8", *faults, "--fresh")

    summary = ended.summary
    assert ended.exit_code == 1
    _assert_all_accounted_for(summary)
    named = {(leak["owner"], leak["block"]) for leak in summary["leaked_blocks"]}
    assert named == {(line["owner"], block) for line in _lines(truth) for block in line["blocks"]}
    assert len({block for _, block in named}) == summary["active_blocks_at_end"] >= 1
    assert re.search(r"NOT GOOD: \d+ blocks leaked", ended.said)


@pytest.mark.slow
def test_blocks_that_are_freed_twice_are_counted_and_an_injected_fault_is_described(tmp_path):
    truth = tmp_path / "truth.jsonl"
    faults = ("--fault", "double_free:every=3", "--faults-truth", str(truth))
    ended = _run(tmp_path, "--simulated", "--no-dashboard", "--seconds", "8", *faults, "--fresh")

    assert ended.exit_code == 1
    _assert_all_accounted_for(ended.summary)
    twice = sum(len(line["blocks"]) for line in _lines(truth))
    assert ended.summary["refused_frees"] == twice >= 1
    assert f"NOT GOOD: {twice} blocks were freed although nobody held them" in ended.said
    assert "misbehaves on purpose: double_free:every=3 (some ended sequences free" in ended.said


@pytest.mark.slow
def test_a_demo_whose_engine_is_killed_ends_by_itself_with_what_was_recorded(tmp_path):
    faults = ("--fault", "engine_crash:after_seconds=5")
    ended = _run(tmp_path, "--simulated", "--no-dashboard", "--seconds", "60", *faults, "--fresh")

    assert ended.exit_code == 1
    assert ended.summary["engine_crashed"]
    assert ended.summary["events_emitted"] is None
    assert ended.summary["events_stored"] > 100
    assert (ended.summary["events_lost"], ended.summary["audits_failed"]) == (0, 0)
    assert "NOT GOOD: the engine died before it could end" in ended.said


def _lines(truth: Path) -> list[dict]:
    return [json.loads(line) for line in truth.read_text().splitlines()]


@pytest.mark.slow
def test_ctrl_c_ends_everything_and_answers_with_a_summary(tmp_path):
    with _demo(tmp_path, "--simulated", "--store", str(tmp_path / "demo.db")) as process:
        wait_until(lambda: "dashboard  http" in (tmp_path / "said").read_text(), timeout=60)
        children = psutil.Process(process.pid).children(recursive=True)
        assert len(children) >= 3
        url = re.search(r"engine +(http\S+)/v1", (tmp_path / "said").read_text())[1]
        wait_until(lambda: _accounts(url)["output_tokens"] > 0, timeout=30)

        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=90)

    assert process.returncode == 0
    _assert_all_accounted_for(json.loads(output))
    _, alive = psutil.wait_procs(children, timeout=5)
    assert alive == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "said"),
    [
        (signal.SIGINT, "starting a simulated engine"),
        (signal.SIGTERM, "starting a simulated engine"),
        (signal.SIGINT, "agent      http"),
        (signal.SIGHUP, "agent      http"),
    ],
)
def test_an_impatient_end_leaves_nothing_behind(tmp_path, number, said):
    with _demo(tmp_path, "--simulated", "--no-dashboard") as process:
        wait_until(lambda: said in (tmp_path / "said").read_text(), timeout=60)
        wait_until(lambda: len(psutil.Process(process.pid).children()) == 2, timeout=30)
        children = psutil.Process(process.pid).children(recursive=True)

        while process.poll() is None:
            process.send_signal(number)
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.1)

    assert process.returncode == 0
    assert [child for child in children if child.is_running()] == []
    assert list((tmp_path / "runtime" / "kvpulse").iterdir()) == []
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.slow
def test_a_demo_that_is_killed_leaves_no_process_behind(tmp_path):
    with _demo(tmp_path, "--simulated", "--no-dashboard") as process:
        wait_until(lambda: "agent      http" in (tmp_path / "said").read_text(), timeout=60)
        children = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        process.wait(10)

        _, alive = psutil.wait_procs(children, timeout=15)
    assert alive == []


def _accounts(url: str) -> dict:
    with urllib.request.urlopen(f"{url}/debug/accounts", timeout=10) as answer:
        return json.load(answer)


@pytest.mark.slow
@pytest.mark.model
def test_a_demo_on_smollm2_accounts_for_every_event_and_shows_pressure(tmp_path):
    ended = _run(tmp_path, "--no-dashboard", "--seconds", "25")
    if "no real model" in ended.said:
        pytest.skip(ended.said.splitlines()[0])

    _assert_all_accounted_for(ended.summary)
    _assert_shows_pressure(ended.summary)
    assert ended.exit_code == 0
    assert ended.summary["active_blocks_at_end"] == 0
    assert "SmolLM2" in ended.said
