"""`kvpulse block-map --at T`: the map of any moment, of the run of then, or why there is none."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import text

from agent.commands.moments import parse_moment
from agent.errors import ConfigError
from agent.reads.models import RunRow
from agent.reads.reads import open_reads
from agent.store.store import Store
from kvpulse.command import main as kvpulse
from kvpulse.recorder import Recorder
from tests.agent.factories_store import empty_store
from tests.agent.simulated_writer import record
from tests.postgres import PostgresServer, postgres_server  # noqa: F401 - a fixture

NS = 1_000_000_000


@pytest.fixture(
    scope="module", params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]
)
def where(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store with two runs of the engine sim-a, and one of engine-b."""
    folder = tmp_path_factory.mktemp("maps")
    if request.param == "sqlite":
        store = empty_store(folder)
    else:
        server: PostgresServer = request.getfixturevalue("postgres_server")
        store = server.database()
    record(folder / "journal", num_requests=20)
    for engine in ("sim-a", "engine-b"):
        recorder = Recorder.open(folder / "journal", engine, total_blocks=8, block_size=4)
        recorder.arrive(1, 8, 4)
        recorder.admit(1)
        recorder.allocate(1, [3, 4])
        recorder.close()
    journal = str(folder / "journal")
    assert kvpulse(["agent", "--once", "--journal", journal, "--store", store]) == 0
    return store


@pytest.fixture
def first_run(where: str) -> RunRow:
    reads = open_reads(where)
    run = reads.runs("sim-a")[-1]
    reads.close()
    return run


def change(where: str, *statements: str, **bind: object) -> None:
    with Store.open(where) as store, store._engine.begin() as connection:
        for statement in statements:
            used = {name: bind[name] for name in bind if f":{name}" in statement}
            connection.execute(text(statement), used)


def ask(capsys: pytest.CaptureFixture[str], where: str, *arguments: str) -> tuple[int, Any, str]:
    code = kvpulse(["block-map", "--store", where, *arguments])
    told = capsys.readouterr()
    parse = "--json" in arguments and told.out
    return code, json.loads(told.out) if parse else told.out, told.err


def middle(run: RunRow) -> int:
    assert run.last_event_at_ns is not None
    return (run.started_at_ns + run.last_event_at_ns) // 2


def iso(at_ns: int) -> str:
    return datetime.fromtimestamp(at_ns // NS, UTC).isoformat().replace("+00:00", "Z")


def test_a_moment_of_an_earlier_run_shows_that_runs_blocks(
    capsys: pytest.CaptureFixture[str], where: str, first_run: RunRow
) -> None:
    at_ns = middle(first_run)
    reads = open_reads(where)
    expected = reads.block_map(first_run.run_key, at_ns)
    reads.close()
    assert expected is not None

    code, answer, _ = ask(capsys, where, "--engine", "sim-a", "--at", f"{at_ns}ns", "--json")

    assert code == 0
    assert (answer["run_id"], answer["at_ns"]) == (first_run.run_id, at_ns)
    assert (answer["exact"], answer["age_ns"], answer["note"]) == (True, 0, None)
    assert answer["state"] == expected.state.tolist()
    assert answer["owners"] == expected.owners
    held = {holder["owner"]: sorted(holder["blocks"]) for holder in answer["holders"]}
    assert held
    for owner, blocks in held.items():
        assert blocks == [b for b, owners in enumerate(answer["owners"]) if owner in owners]


def test_the_drawing_has_one_character_for_each_block(
    capsys: pytest.CaptureFixture[str], where: str
) -> None:
    code, page, _ = ask(capsys, where, "--engine", "engine-b", "--width", "4")

    assert code == 0
    assert "0  ...A\n4  A...\n" in page
    assert "A sequence 1: 2 blocks" in page
    assert page.startswith("engine-b at 20")


def test_a_moment_can_be_written_in_every_way_that_help_names(
    capsys: pytest.CaptureFixture[str], where: str, first_run: RunRow
) -> None:
    at_ns = middle(first_run) // NS * NS
    newest = max(run.last_event_at_ns or 0 for run in open_runs(where))
    ago = (newest - at_ns) / NS
    forms = [iso(at_ns), str(at_ns // NS), f"{at_ns}ns", f"-{ago:.9f}s"]

    answers = [ask(capsys, where, "--engine", "sim-a", "--at", form, "--json")[1] for form in forms]

    assert [answer["asked_at_ns"] // 1_000 for answer in answers] == [at_ns // 1_000] * 4
    assert all(answer["owners"] == answers[0]["owners"] for answer in answers)


def open_runs(where: str) -> list[RunRow]:
    reads = open_reads(where)
    runs = reads.runs("sim-a")
    reads.close()
    return runs


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_before_an_engines_history_there_is_no_map_but_the_time_it_begins(
    capsys: pytest.CaptureFixture[str], where: str, first_run: RunRow, options: list[str]
) -> None:
    early = f"{first_run.started_at_ns - NS}ns"

    code, out, error = ask(capsys, where, "--engine", "sim-a", "--at", early, *options)

    assert (code, out) == (1, "")
    assert f"its history begins {iso(first_run.started_at_ns)[:19]}" in error


def test_after_a_run_ended_its_last_state_is_shown_as_that(
    capsys: pytest.CaptureFixture[str], where: str, first_run: RunRow
) -> None:
    late = (first_run.last_event_at_ns or 0) + 5 * NS

    _, answer, _ = ask(capsys, where, "--engine", "sim-a", "--at", f"{late}ns", "--json")
    _, page, _ = ask(capsys, where, "--engine", "sim-a", "--at", f"{late}ns")

    assert answer["run_id"] == first_run.run_id
    assert answer["at_ns"] == first_run.last_event_at_ns
    assert "the last state of a run that is finished: no event in the 5.0 s since" in page


def test_a_moment_within_a_gap_is_said_with_what_was_lost(
    capsys: pytest.CaptureFixture[str], where: str, first_run: RunRow
) -> None:
    end = first_run.last_event_at_ns or 0
    bind = {"key": first_run.run_key, "start": end, "end": end + 8 * NS}
    insert = (
        "INSERT INTO gaps (run_key, seq0, seq1, start_at_ns, end_at_ns, why, lost) VALUES"
        " (:key, 1000000, 1000007, :start, :end, 'deleted', '{\"free\": 7}')"
    )
    change(where, insert, **bind)

    at = ["--engine", "sim-a", "--at", f"{end + 2 * NS}ns"]
    code, answer, _ = ask(capsys, where, *at, "--json")
    _, page, _ = ask(capsys, where, *at)
    change(where, "DELETE FROM gaps")

    assert (code, answer["exact"]) == (0, False)
    assert "not exact: 7 events from" in answer["note"]
    assert "were lost (deleted); drawn is what was known before" in page


def test_beyond_the_detail_the_nearest_snapshot_is_shown_with_its_age(
    capsys: pytest.CaptureFixture[str], where: str, first_run: RunRow
) -> None:
    key = {"key": first_run.run_key}
    with Store.open(where) as store, store._engine.begin() as connection:
        oldest = connection.execute(
            text("SELECT MIN(at_ns) FROM snapshots WHERE run_key=:key"), key
        ).scalar_one()
    change(
        where,
        "DELETE FROM snapshots WHERE run_key=:key AND at_ns>:oldest",
        "UPDATE snapshots SET detail_gone=1 WHERE run_key=:key",
        "DELETE FROM chunks WHERE run_key=:key",
        **key,
        oldest=oldest,
    )

    at = ["--engine", "sim-a", "--at", f"{oldest + 3 * NS}ns"]
    code, answer, _ = ask(capsys, where, *at, "--json")
    _, page, _ = ask(capsys, where, *at)

    assert (code, answer["exact"], answer["age_ns"]) == (0, False, 3 * NS)
    assert "the nearest snapshot, 3.0 s older" in page


def test_of_several_engines_one_must_be_named(
    capsys: pytest.CaptureFixture[str], where: str
) -> None:
    code, out, error = ask(capsys, where)

    assert (code, out) == (2, "")
    assert "engine-b, sim-a" in error


@pytest.mark.parametrize("at", ["soon", "", "nan", "1e300", "-1e300", "-5", "9" * 30 + "ns", "-9d"])
def test_a_moment_that_is_none_is_named_with_what_would_be_accepted(at: str) -> None:
    with pytest.raises(ConfigError, match="seconds since 1970") as caught:
        parse_moment("--at", at, newest_ns=NS)

    assert caught.value.found == at


def test_help_names_the_forms_of_a_time(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        kvpulse(["block-map", "--help"])

    told = " ".join(capsys.readouterr().out.split())
    assert left.value.code == 0
    assert all(form in told for form in ("2026-11-30T16:00:00Z", "since 1970", "-5m", "--json"))
