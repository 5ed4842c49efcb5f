"""`kvpulse db check` recounts the store, and finds what somebody changed in it."""

import json
import sqlite3
from pathlib import Path

import pytest

from agent.agent_loop import AgentLoop
from agent.config import AgentConfig
from agent.live_view import LiveView
from agent.store.connection import parse_address
from agent.store.prune import Pruner
from agent.store.store import Store
from kvpulse.command import main as kvpulse
from tests.agent.factories_store import empty_store
from tests.agent.simulated_writer import record


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recorded")
    record(folder / "journal", num_requests=150)
    where = empty_store(folder)
    with pytest.MonkeyPatch.context() as patch, Store.open(where) as store:
        patch.setattr("agent.ledger.ledger.SNAPSHOT_NS", 4_000_000_000)
        config = AgentConfig(journal=folder / "journal", store=where, commit_events=2048)
        loop = AgentLoop(config, store, LiveView(0))
        while loop.turn(scan=True):
            pass
        loop.turn(scan=True)
    return folder / "kvpulse.db"


@pytest.fixture
def where(recorded: Path, tmp_path: Path) -> str:
    path = tmp_path / "kvpulse.db"
    path.write_bytes(recorded.read_bytes())
    return str(path)


def check(where: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, set[str]]:
    """Return the exit code and the laws that were found broken."""
    capsys.readouterr()
    code = kvpulse(["db", "check", "--store", where, "--json"])
    facts = json.loads(capsys.readouterr().out)
    assert facts["usable"]
    return code, {finding["law"] for finding in facts["findings"]}


def change(where: str, statement: str, *values: object) -> None:
    connection = sqlite3.connect(where)
    with connection:
        assert connection.execute(statement, values).rowcount > 0
    connection.close()


def test_a_store_as_the_agent_left_it_adds_up(
    where: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(where, capsys) == (0, set())


def test_a_pruned_store_adds_up_too(where: str, capsys: pytest.CaptureFixture[str]) -> None:
    pruner = Pruner(parse_address(where))
    pruner.prune(int(Path(where).stat().st_size * 0.8))
    pruner.close()

    assert check(where, capsys) == (0, set())


@pytest.mark.parametrize(
    ("statement", "law"),
    [
        ("UPDATE runs SET events_stored = events_stored + 1", "events_add_up"),
        ("UPDATE runs SET events_lost = 5", "losses_add_up"),
        ("UPDATE kind_totals SET stored = stored + 1 WHERE kind = 1", "kinds_add_up"),
        ("DELETE FROM chunks WHERE seq0 = (SELECT MAX(seq0) FROM chunks)", "chunks_add_up"),
        ("UPDATE chunks SET num_events = num_events + 1", "chunks_say_what_they_hold"),
        ("UPDATE chunks SET start_at_ns = start_at_ns - 1", "chunks_say_what_they_hold"),
        ("UPDATE chunks SET data = SUBSTR(data, 1, 40)", "chunks_readable"),
        ("UPDATE snapshots SET map_data = SUBSTR(map_data, 1, 40)", "snapshots_readable"),
        ("UPDATE rollups SET free_blocks = free_blocks + 1", "states_add_up"),
        ("UPDATE rollups SET steps = steps + 1 WHERE tier_seconds = 60", "tiers_add_up"),
        ("UPDATE latencies SET count = count + 1", "latencies_add_up"),
        ("UPDATE latencies SET histogram = X'02'", "histograms_readable"),
        ("UPDATE requests SET wait_pool_ns = wait_pool_ns + 1", "waits_add_up"),
        ("UPDATE requests SET wait_ns = '{'", "requests_readable"),
    ],
)
def test_what_somebody_changed_is_named(
    where: str, capsys: pytest.CaptureFixture[str], statement: str, law: str
) -> None:
    change(where, statement)

    code, laws = check(where, capsys)

    assert code == 1
    assert law in laws


def test_a_snapshot_that_is_not_what_the_events_come_to_is_named(
    where: str, capsys: pytest.CaptureFixture[str]
) -> None:
    change(
        where,
        "UPDATE snapshots SET map_data = (SELECT map_data FROM snapshots ORDER BY seq LIMIT 1)"
        " WHERE seq = (SELECT MAX(seq) FROM snapshots)",
    )

    code, laws = check(where, capsys)

    assert code == 1
    assert "states_add_up" in laws


def test_a_quick_check_looks_at_the_revision_only(
    where: str, capsys: pytest.CaptureFixture[str]
) -> None:
    change(where, "UPDATE runs SET events_lost = 5")

    assert kvpulse(["db", "check", "--store", where, "--quick"]) == 0


def test_a_store_in_the_middle_of_a_run_adds_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = empty_store(tmp_path)
    record(tmp_path / "journal", num_requests=100)
    with Store.open(where) as store:
        config = AgentConfig(journal=tmp_path / "journal", store=where, commit_events=512)
        loop = AgentLoop(config, store, LiveView(0))
        for _ in range(12):
            loop.turn(scan=True)
            assert check(where, capsys) == (0, set())
