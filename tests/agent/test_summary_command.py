"""`kvpulse summary`: one run added up from the store, and an exit code that judges it."""

import json
from pathlib import Path

import pytest

from agent.commands.summary import main
from agent.ledger.delta import AuditResult, BrokenLaw, LawEvidence, Leak, Named
from agent.store.store import Store
from kvpulse.command import main as kvpulse
from kvpulse.events import UNKNOWN_OWNER
from tests.agent.factories_store import (
    NS,
    SHAPE,
    STREAM,
    chunk,
    delta,
    empty_store,
    kinds,
    progress,
    rollup,
)
from tests.agent.simulated_writer import record


def _fill(where: str, **changes: object) -> None:
    rows = {"t_ns": 10 * NS, "chunks": (chunk(0, 1),), "audits": AuditResult(passed=3), **changes}
    with Store.open(where) as store:
        store.writer(STREAM).commit(delta(1, **rows), SHAPE, progress(1))


def _answer(capsys: pytest.CaptureFixture[str], where: str, *arguments: str) -> tuple[int, dict]:
    code = main(["--store", where, "--json", *arguments])
    return code, json.loads(capsys.readouterr().out)


def test_a_recorded_run_is_summed_up_as_its_engine_counted_it(tmp_path, capsys):
    journal, where = tmp_path / "journal", empty_store(tmp_path)
    account = record(journal, num_requests=60)
    assert kvpulse(["agent", "--once", "--journal", str(journal), "--store", where]) == 0
    capsys.readouterr()

    code, answer = _answer(capsys, where)

    assert code == 0
    stored = {kind: count["stored"] for kind, count in answer["per_kind"].items()}
    assert stored == account["per_kind"]
    assert answer["stored"] == account["events_emitted"]
    assert (answer["state"], answer["lost"], answer["audits_failed"]) == ("finished", 0, 0)
    assert answer["audits_passed"] == account["per_kind"]["pool"]
    assert answer["ledger_balanced"] is True
    assert answer["active_blocks_at_end"] == 0
    assert answer["leaked_blocks"] == []
    assert answer["refused_frees"] == 0


def test_seconds_with_a_wait_for_blocks_and_the_last_active_count_come_from_rollups(
    tmp_path, capsys
):
    where = empty_store(tmp_path)
    waits = {1: 5, 2: 0, 3: NS}
    rows = tuple(rollup(1, s, wait_pool_ns=ns, active_blocks=s) for s, ns in waits.items())
    _fill(where, rollups=rows)

    _, answer = _answer(capsys, where)

    assert answer["seconds_with_pool_wait"] == 2
    assert answer["active_blocks_at_end"] == 3


def test_a_leak_is_named_and_makes_the_answer_bad(tmp_path, capsys):
    where = empty_store(tmp_path)
    _fill(where, leaks=(Leak(block=7, owner=3, since_ns=2 * NS),))

    code, answer = _answer(capsys, where)
    assert main(["--store", where]) == 1

    assert code == 1
    assert answer["leaked_blocks"] == [{"block": 7, "owner": 3}]
    assert "leaked by sequence 3: blocks 7" in capsys.readouterr().out


def test_a_leak_of_an_unknown_owner_is_told_without_one(tmp_path, capsys):
    where = empty_store(tmp_path)
    _fill(where, leaks=(Leak(block=7, owner=UNKNOWN_OWNER, since_ns=2 * NS),))

    _, answer = _answer(capsys, where)
    main(["--store", where])

    assert answer["leaked_blocks"] == [{"block": 7, "owner": None}]
    assert "leaked by an owner unknown, before a gap: blocks 7" in capsys.readouterr().out


@pytest.mark.parametrize(
    "changes",
    [
        {"lost": kinds(free=2)},
        {"audits": AuditResult(passed=3, failed=1)},
        {"broken_laws": (BrokenLaw("states_add_up", NS, None, LawEvidence("2", "1")),)},
    ],
)
def test_lost_events_failed_audits_and_broken_laws_make_the_answer_bad(tmp_path, capsys, changes):
    where = empty_store(tmp_path)
    _fill(where, **changes)

    code, _ = _answer(capsys, where)

    assert code == 1


def test_a_broken_law_is_told_with_its_blocks_owners_and_times(tmp_path, capsys):
    where = empty_store(tmp_path)
    seen = LawEvidence("active 4", "active 3", Named((7,), 1, (3, 5), 2))
    _fill(where, broken_laws=(BrokenLaw("audit", NS, 2 * NS, seen),))

    _, answer = _answer(capsys, where)
    main(["--store", where])

    (told,) = answer["broken_laws"]
    assert told["closed_at_ns"] - told["opened_at_ns"] == NS
    assert (told["law"], told["expected"], told["found"]) == ("audit", "active 4", "active 3")
    assert (told["blocks"], told["owners"]) == ([7], [3, 5])
    line = "a law was broken, audit: active 3, expected active 4; blocks 7; sequences 3, 5; "
    assert line in capsys.readouterr().out


def test_a_run_without_audits_is_not_called_balanced(tmp_path, capsys):
    where = empty_store(tmp_path)
    _fill(where, audits=AuditResult())

    assert _answer(capsys, where)[1]["ledger_balanced"] is False


def test_an_engine_that_is_not_there_is_a_usage_error_that_names_those_that_are(tmp_path, capsys):
    where = empty_store(tmp_path)
    _fill(where)

    assert kvpulse(["summary", "--store", where, "--engine", "other"]) == 2
    assert "engine-a" in capsys.readouterr().err
    assert kvpulse(["summary", "--store", where, "--engine", "engine-a", "--run", "none"]) == 2
    assert "run-1" in capsys.readouterr().err
    assert kvpulse(["summary", "--store", str(Path(where).with_name("none.db"))]) == 3
