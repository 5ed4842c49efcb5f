"""Many engines, runs and tenants in one store: each history is its own."""

import random
from pathlib import Path

import numpy as np
import pytest

from agent.reads.models import RunRow
from agent.reads.reads import Reads, open_reads
from agent.rollups.scalars import COUNTERS, LABELLED
from kvpulse.events import FinishReason, FreeOutcome
from kvpulse.recorder import Recorder
from tests.agent.factories_agent import Agent
from tests.agent.factories_store import empty_store
from tests.agent.factories_stream import SECOND, Clock, ToyEngine
from tests.agent.simulated_writer import record
from tests.agent.stored_rows import all_rows
from tests.postgres import postgres_server, postgres_url  # noqa: F401 - fixtures

ALL = (0, 2**62)
HOUR_NS = 3_600_000_000_000


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return empty_store(tmp_path)
    return str(request.getfixturevalue("postgres_url"))


def one_sequence(journal: Path, engine: str, tenant: str, blocks: list[int]) -> None:
    """Let an engine serve sequence 1 of a tenant on some blocks, and end in good order."""
    recorder = Recorder.open(journal, engine, total_blocks=16, block_size=4)
    number = recorder.tenant(tenant)
    recorder.arrive(1, 4 * len(blocks), 4, number)
    recorder.admit(1, number)
    recorder.allocate(1, blocks, number)
    recorder.heartbeat(1, 1, 0)
    recorder.free(1, blocks, 0, FreeOutcome.TO_FREE, number)
    recorder.finish(1, FinishReason.STOP, 4 * len(blocks), 1, 4 * len(blocks), 0, number)
    recorder.heartbeat(2, 0, 0)
    recorder.close()


def sums(reads: Reads, run: RunRow) -> dict[str, float]:
    """Return each counter over a run; no interval of it may be negative."""
    series = reads.series(run.run_key, COUNTERS, *ALL)
    assert all((v[~np.isnan(v)] >= 0).all() for v in series.values.values())
    for family in LABELLED:
        labelled = reads.labelled(run.run_key, family.name, *ALL)
        assert all((values >= 0).all() for values in labelled.values.values())
    return {name: float(np.nansum(values)) for name, values in series.values.items()}


def test_three_engines_by_two_agents_at_once_keep_their_own_counts(
    tmp_path: Path, where: str
) -> None:
    journals = (tmp_path / "one", tmp_path / "two")
    accounts = {
        name: record(journal, num_requests=number, engine=name)
        for name, journal, number in (
            ("sim-a", journals[0], 12),
            ("sim-b", journals[0], 20),
            ("sim-c", journals[1], 16),
        )
    }
    agents = [Agent(journal, where, commit_events=1024) for journal in journals]

    for _ in range(4):
        for agent in agents:
            agent.go_on(1)
    for agent in agents:
        agent.drain()

    reads = open_reads(where)
    for engine in reads.engines():
        account = accounts.pop(engine.engine)
        totals = {kind: n.stored for kind, n in reads.totals(engine.run_key).items() if n.stored}
        assert totals == account["per_kind"]
        assert (engine.events_lost, engine.audits_failed) == (0, 0)
        assert sums(reads, engine)["events_stored"] == account["events_emitted"]
    reads.close()
    assert accounts == {}
    assert all(agent.loop.conflicts == [] for agent in agents)
    for agent in agents:
        agent.vanish()


def test_an_engine_that_starts_again_is_a_new_run_and_counts_from_zero(
    tmp_path: Path, where: str
) -> None:
    journal = tmp_path / "journal"
    one_sequence(journal, "engine-a", "alpha", [1, 2, 3])
    agent = Agent(journal, where)
    agent.go_on(2)
    one_sequence(journal, "engine-a", "alpha", [7])
    agent.time.seconds += 2
    agent.drain()

    reads = open_reads(where)
    newer, older = reads.runs("engine-a")
    (engine,) = reads.engines()
    counted = [sums(reads, run) for run in (older, newer)]
    restarts = [mark.text for mark in reads.marks(newer.run_key, *ALL) if mark.kind == "restart"]
    reads.close()
    agent.vanish()
    assert engine.run_key == newer.run_key
    assert [each["allocated"] for each in counted] == [3, 1]
    assert [each["arrived"] for each in counted] == [1, 1]
    assert sorted(restarts) == sorted(f"run {run.run_id} started" for run in (older, newer))


def test_sequences_of_one_number_and_tenants_of_one_name_stay_apart(
    tmp_path: Path, where: str
) -> None:
    journal = tmp_path / "journal"
    one_sequence(journal, "engine-a", "alpha", [1, 2, 3])
    one_sequence(journal, "engine-b", "alpha", [5])
    one_sequence(journal, "engine-c", "beta", [5, 6])
    agent = Agent(journal, where)
    agent.drain()

    reads = open_reads(where)
    found = {}
    for engine in reads.engines():
        (request,) = reads.requests(engine.run_key, *ALL)
        (tenant,) = reads.tenants(engine.run_key, *ALL)
        found[engine.engine] = (request.owner, request.peak_blocks, tenant.tenant)
        assert tenant.num_requests == 1
    reads.close()
    agent.vanish()
    assert found == {
        "engine-a": (1, 3, "alpha"),
        "engine-b": (1, 1, "alpha"),
        "engine-c": (1, 2, "beta"),
    }


def test_a_wall_clock_that_steps_both_ways_under_the_agent_changes_no_row(
    tmp_path: Path, where: str
) -> None:
    record(tmp_path / "journal", num_requests=20)
    (tmp_path / "steady").mkdir()
    steady = empty_store(tmp_path / "steady")
    for store, steps_ns in ((steady, (0, 0, 0, 0)), (where, (0, 5, -9, 4))):
        agent = Agent(tmp_path / "journal", store, commit_events=2048)
        for step in steps_ns:
            agent.time.wall_ns += step * HOUR_NS
            agent.go_on(1)
        agent.drain()
        agent.vanish()

    stepped, expected = all_rows(where), all_rows(steady)

    for name, rows in expected.items():
        assert stepped[name] == rows, name
    assert len(expected["requests"]) == 20
    assert expected["latencies"]


def record_heartbeats(journal: Path, *, num_acts: int) -> None:
    """Let a toy engine act, and state both its clocks each tenth time."""
    toy, rng = ToyEngine(journal, run_id="r"), random.Random(7)
    for number in range(num_acts):
        toy.act(rng)
        if number % 10 == 0:
            toy.recorder.heartbeat(number, len(toy.live), 0)
    toy.pool()
    toy.recorder.close()


def test_a_wall_clock_that_steps_under_the_engine_changes_no_duration(
    tmp_path: Path, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other").mkdir()
    steady = empty_store(tmp_path / "other")
    plain_wall = Clock.wall

    def stepping(clock: Clock) -> int:
        """Step five hours on after a while, then nine back."""
        moved = clock.now_ns - Clock().now_ns
        hours = 0 if moved < SECOND else 5 if moved < 2 * SECOND else -4
        return plain_wall(clock) + hours * HOUR_NS

    for store, wall in ((steady, plain_wall), (where, stepping)):
        monkeypatch.setattr(Clock, "wall", wall)
        journal = tmp_path / wall.__name__
        record_heartbeats(journal, num_acts=1_200)
        agent = Agent(journal, store, commit_events=512)
        agent.drain()
        agent.vanish()

    stepped, expected = all_rows(where), all_rows(steady)
    for name in ("requests", "rollups", "latencies", "labelled", "kind_totals", "gaps"):
        assert stepped[name] == expected[name], name
    assert len(expected["requests"]) > 50
