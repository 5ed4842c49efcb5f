"""A store is brought under its budget: oldest detail first, room given back."""

import json
import time
from pathlib import Path

import pytest
from sqlalchemy import text

from agent.agent_loop import AgentLoop
from agent.config import AgentConfig
from agent.live_view import LiveView
from agent.reads.reads import Reads, open_reads
from agent.store.connection import parse_address
from agent.store.keeper import StoreKeeper
from agent.store.prune import Pruner
from agent.store.retention import Held
from agent.store.store import Store
from kvpulse.command import main as kvpulse
from tests.agent.factories_prune import fill, prune, recorded_store, rows
from tests.agent.factories_store import empty_store
from tests.agent.simulated_writer import record
from tests.postgres import postgres_server, postgres_url  # noqa: F401 - fixtures


@pytest.fixture
def where(tmp_path: Path) -> str:
    return recorded_store(tmp_path)


def first_run(reads: Reads) -> int:
    (engine,) = reads.engines()
    return engine.run_key


def test_a_store_within_its_budget_is_left_as_it_is(where: str) -> None:
    counts = "SELECT (SELECT COUNT(*) FROM chunks), (SELECT COUNT(*) FROM rollups)"
    before = rows(where, counts)

    done = prune(where, 1 << 30)

    assert done.is_within
    assert not done.deleted
    assert rows(where, counts) == before


def test_the_oldest_detail_goes_rollups_stay_and_the_file_shrinks(where: str) -> None:
    size = Path(where).stat().st_size
    rollups = rows(where, "SELECT COUNT(*) FROM rollups")
    chunks = rows(where, "SELECT seq0 FROM chunks ORDER BY seq0")

    done = prune(where, int(size * 0.9))

    left = rows(where, "SELECT seq0 FROM chunks ORDER BY seq0")
    assert done.is_within
    assert Path(where).stat().st_size <= size * 0.9
    assert 0 < len(left) < len(chunks)
    assert left == chunks[-len(left) :]
    assert rows(where, "SELECT COUNT(*) FROM rollups") == rollups
    ((held, totals, pruned, stored),) = rows(
        where,
        "SELECT (SELECT SUM(num_events) FROM chunks), num_chunks, events_pruned, events_stored"
        " FROM runs",
    )
    assert held + pruned == stored
    assert totals == len(left)


def test_a_map_inside_the_horizon_is_exact_and_before_it_the_nearest_one_with_its_age(
    where: str,
) -> None:
    size = Path(where).stat().st_size
    ((begin, end),) = rows(where, "SELECT MIN(start_at_ns), MAX(end_at_ns) FROM chunks")
    reads = open_reads(where)
    key = first_run(reads)
    whole = reads.block_map(key, end - 1_000_000_000)

    prune(where, int(size * 0.9))

    late = reads.block_map(key, end - 1_000_000_000)
    early = reads.block_map(key, begin + 6_000_000_000)
    reads.close()
    assert whole is not None
    assert late is not None
    assert late.exact
    assert late.state.tolist() == whole.state.tolist()
    assert late.ref_owner.tolist() == whole.ref_owner.tolist()
    assert early is not None
    assert not early.exact
    assert early.age_ns != 0


def test_a_tiny_budget_takes_all_detail_and_leaves_the_newest_rollups(where: str) -> None:
    done = prune(where, 1)

    assert not done.is_within
    assert rows(where, "SELECT COUNT(*) FROM chunks") == [(0,)]
    assert rows(where, "SELECT COUNT(*) > 0 FROM rollups WHERE tier_seconds=3600") == [(1,)]
    assert rows(where, "SELECT COUNT(*) > 0 FROM rollups WHERE tier_seconds=1") == [(1,)]


def put_gpu_minutes(where: str, number: int) -> None:
    """Put so many minutes of one GPU into a store, as old as the store's newest event and older."""
    rows(
        where,
        "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n"
        f" WHERE i < {number - 1}) INSERT INTO gpu_samples SELECT 'host', '0',"
        " (SELECT MAX(last_event_at_ns) FROM runs) - i * 60000000000, 'H200', 12, 1, 2, 0.5, 300.0,"
        " '{}' FROM n RETURNING 1",
    )


def test_gpu_minutes_above_their_share_go_and_take_nothing_else_with_them(where: str) -> None:
    counts = "SELECT (SELECT COUNT(*) FROM chunks), (SELECT COUNT(*) FROM rollups)"
    before = rows(where, counts)
    put_gpu_minutes(where, 40_000)
    size = Path(where).stat().st_size

    done = prune(where, int(size * 0.9))

    assert done.is_within
    assert set(done.deleted) == {Held.GPUS}
    assert rows(where, counts) == before
    assert rows(where, "SELECT COUNT(*) FROM gpu_samples") == [(40_000 - done.deleted[Held.GPUS],)]


def test_gpu_minutes_within_their_share_stay_while_an_engines_detail_goes(where: str) -> None:
    put_gpu_minutes(where, 25)
    size = Path(where).stat().st_size

    done = prune(where, int(size * 0.9))

    assert done.deleted[Held.DETAIL]
    assert Held.GPUS not in done.deleted
    assert rows(where, "SELECT COUNT(*) FROM gpu_samples") == [(25,)]


def test_the_newest_hours_of_a_gpu_stay_whatever_the_budget(where: str) -> None:
    put_gpu_minutes(where, 200)

    prune(where, 1)

    assert rows(where, "SELECT COUNT(*) FROM gpu_samples") == [(121,)]


def test_an_agent_goes_on_after_its_live_run_was_pruned_to_the_bone(tmp_path: Path) -> None:
    where = empty_store(tmp_path)
    account = record(tmp_path / "journal", num_requests=60)
    config = AgentConfig(journal=tmp_path / "journal", store=where, commit_events=2048)
    with Store.open(where) as store:
        loop = AgentLoop(config, store, LiveView(0))
        for _ in range(5):
            loop.turn(scan=True)
        loop.close()

    prune(where, 1)
    fill(where, tmp_path / "journal")

    reads = open_reads(where)
    (engine,) = reads.engines()
    reads.close()
    assert engine.events_stored == account["events_emitted"]
    assert engine.audits_failed == 0


def test_the_command_says_what_went_and_ends_with_1_when_it_is_not_enough(
    where: str, capsys: pytest.CaptureFixture[str]
) -> None:
    size = Path(where).stat().st_size
    budget = max(1 << 20, int(size * 0.8))

    code = kvpulse(["db", "prune", "--store", where, "--store-budget", str(budget), "--json"])

    facts = json.loads(capsys.readouterr().out)
    assert code == 0
    assert facts["within"]
    assert facts["after_bytes"] <= budget
    assert kvpulse(["db", "prune", "--store", where, "--store-budget", "a lot"]) == 2
    assert "a size from 1MiB on" in capsys.readouterr().err
    assert kvpulse(["db", "prune", "--store", where + ".not"]) == 3


def test_the_keeper_prunes_by_itself_and_says_when_it_cannot(where: str) -> None:
    view = LiveView(0)
    keeper = StoreKeeper(parse_address(where), view, budget_bytes=1, prune_seconds=0.01)

    keeper.start()
    while not view.snapshot().errors:
        time.sleep(0.01)
    keeper.stop()

    (error,) = view.snapshot().errors
    assert error.subject == "retention"
    assert "raise store_budget" in error.text
    assert rows(where, "SELECT COUNT(*) FROM chunks") == [(0,)]


@pytest.mark.postgres
def test_postgres_is_pruned_by_one_at_a_time(tmp_path: Path, postgres_url: str) -> None:  # noqa: F811
    record(tmp_path / "journal", num_requests=60)
    fill(postgres_url, tmp_path / "journal")
    first = Pruner(parse_address(postgres_url))
    second = Pruner(parse_address(postgres_url))

    with first._alone() as is_ours:
        assert is_ours
        assert not second.prune(1).is_ours
    done = second.prune(1)

    first.close()
    second.close()
    assert done.is_ours
    assert done.after_bytes < done.before_bytes
    engine = Store.open(postgres_url)._engine
    with engine.connect() as connection:
        assert connection.execute(text("SELECT COUNT(*) FROM chunks")).scalar() == 0
    engine.dispose()
