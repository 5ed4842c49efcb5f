"""Targets of engines as they are stored: across a restart, in metrics, in `kvpulse doctor`."""

import json
import re
from pathlib import Path

import pytest
from prometheus_client.exposition import generate_latest

from agent.log_limit import OncePerHour
from agent.metrics.exporter import exporter_registry
from agent.metrics.page import page
from agent.metrics.targets import TARGET_TABLE
from agent.reads.models import RunState
from agent.reads.reads import open_reads
from agent.targets.attainment import Attainment
from agent.targets.measure import measure
from agent.targets.target import Target
from agent.targets.watch import TargetWatch
from kvpulse.command import main as kvpulse
from tests.agent.factories_live import NOW_NS, SECOND, live_engine, view_of
from tests.agent.factories_store import empty_store
from tests.agent.simulated_writer import record

SLOW, NEVER = Target("ttft", 0.99, 600.0), Target("ttft", 0.99, 0.001)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two runs of one engine, one after the other."""
    folder = tmp_path_factory.mktemp("targets")
    where = empty_store(folder)
    for _ in range(2):
        record(folder / "journal", num_requests=60)
    assert kvpulse(["agent", "--once", "--journal", str(folder / "journal"), "--store", where]) == 0
    return where


def test_every_first_token_of_the_window_counts_those_before_a_restart_as_well(
    stored: str,
) -> None:
    reads = open_reads(stored)
    try:
        (engine,) = reads.engines()
        runs = reads.runs("sim-a")
        summaries = [reads.latency_summary(run.run_key, "ttft", 0, 2**62) for run in runs]
        end_ns = max(run.last_event_at_ns or 0 for run in runs) + SECOND
        slow, _ = measure(reads, engine.engine, [SLOW], end_ns)
        never, _ = measure(reads, engine.engine, [NEVER], end_ns)
        other = measure(reads, engine.engine, [Target("ttft", 0.99, 1.0, "sim-b")], end_ns)
    finally:
        reads.close()

    assert len(runs) == 2
    total = sum(summary.count for summary in summaries if summary is not None)
    assert (slow.samples, slow.within) == (total, total)
    assert (never.samples, never.within) == (total, 0)
    assert never.burn_rate == pytest.approx(100.0)
    assert other == ()


def test_doctor_shows_a_target_and_its_exit_code_stays_that_of_the_verdict(
    stored: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = kvpulse(["doctor", "--store", stored, "--targets", "ttft p99 1ms", "--json"])

    answer = json.loads(capsys.readouterr().out)
    found = {each["name"]: each for each in answer["evidence"]}
    assert (code, answer["verdict"], answer["severity"]) == (0, "healthy", "warning")
    assert found["missed_target_ttft"]["value"] == 0.0


def test_metrics_of_a_target_stand_beside_its_engine() -> None:
    target = Target("ttft", 0.5, 2.0)
    view = view_of(live_engine())
    view.note_targets(
        "engine-0", (Attainment(target, 300, 200, 180), Attainment(target, 3_600, 3, 3))
    )

    text = generate_latest(exporter_registry(view, lambda: NOW_NS)).decode()

    assert set(re.findall(r"^kvpulse_target.*$", text, re.MULTILINE)) == {
        'kvpulse_target_seconds{engine="engine-0",target="ttft"} 2.0',
        'kvpulse_target_objective_ratio{engine="engine-0",target="ttft"} 0.5',
        'kvpulse_target_within_ratio{engine="engine-0",target="ttft",window="5m"} 0.9',
        'kvpulse_target_burn_rate{engine="engine-0",target="ttft",window="5m"} 0.2',
    }, "the hour has too few samples: it is absent"


def test_a_silent_engine_s_targets_are_withheld() -> None:
    view = view_of(live_engine())
    view.note_targets("engine-0", (Attainment(SLOW, 300, 200, 180),))

    text = generate_latest(exporter_registry(view, lambda: NOW_NS + 60 * SECOND)).decode()

    assert "kvpulse_source_up" in text
    assert "kvpulse_target" not in text


def test_every_metric_of_targets_is_on_the_page() -> None:
    assert all(f"| `{metric.name}` | gauge |" in page() for metric in TARGET_TABLE)


def test_the_agent_looks_at_engines_that_live_and_a_store_in_trouble_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    dead = live_engine(engine="engine-1", state=RunState.DEAD)
    view = view_of(live_engine(), dead)
    limit = OncePerHour(lambda: 0.0)
    watch = TargetWatch(empty_store(tmp_path), view, [SLOW], limit)
    nowhere = TargetWatch(str(tmp_path / "none.db"), view, [SLOW], limit)

    nowhere.look()
    watch.look()
    watch.close()

    assert "targets cannot be measured now: no store at" in caplog.text
    assert view.snapshot().targets.keys() == {"engine-0"}
    now, hour = view.snapshot().targets["engine-0"]
    assert (now.samples, now.within_ratio, hour.samples) == (0, None, 0)
