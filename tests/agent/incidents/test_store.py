"""Incidents in the store: exact, never doubled, never opened again, on both databases."""

import pytest
from sqlalchemy import text

from agent.errors import IncidentConflict, IncidentDamaged, IncidentNotFound, StateError
from agent.reads.incidents import IncidentFilter
from agent.reads.reads import open_reads
from agent.store import incidents as store_incidents
from agent.store.connection import open_for_writing, parse_address
from agent.store.incidents import Acknowledgement, IncidentWriter
from agent.triage.codec import decode_diagnosis, encode_diagnosis
from agent.triage.judge import judge
from agent.triage.verdicts import Verdict
from tests.agent.factories_facts import facts
from tests.agent.factories_store import NS, empty_store
from tests.agent.incidents.factories_incidents import (
    AT,
    closed,
    incident,
    leak_diagnosis,
    opened,
    store_run,
    write,
)
from tests.postgres import postgres_server, postgres_url  # noqa: F401 - fixtures


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def where(request, tmp_path):
    if request.param == "postgres":
        return request.getfixturevalue("postgres_url")
    return empty_store(tmp_path)


@pytest.fixture
def path(tmp_path):
    return empty_store(tmp_path)


def execute(where, statement):
    engine = open_for_writing(parse_address(where))
    with engine.begin() as connection:
        connection.execute(text(statement))
    engine.dispose()


def test_an_incident_is_read_as_it_was_written_and_acknowledged(where):
    run_key = store_run(where)
    (stored,) = write(where, run_key, opened())
    key = stored.incident.key
    writer = IncidentWriter.open(parse_address(where))
    writer.acknowledge(key, Acknowledgement("Jörg", AT + 40 * NS, "looking"))
    later = incident(seen_at_ns=AT + 80 * NS, key=key)
    writer.write(run_key, [type(stored)(stored.change, later)], now_ns=AT + 90 * NS)
    writer.close()

    reads = open_reads(where)
    found = reads.incident(key)
    reads.close()

    assert found.incident == later
    assert found.row.run_key == run_key
    assert found.row.updated_at_ns == AT + 90 * NS
    assert (found.row.acknowledged_by, found.row.acknowledged_note) == ("Jörg", "looking")
    assert found.row.acknowledged_at_ns == AT + 40 * NS


def test_writing_a_change_twice_changes_nothing(where):
    run_key = store_run(where)
    first = write(where, run_key, opened())

    assert write(where, run_key, opened()) == first
    assert write(where, run_key, closed(AT + 60 * NS)) != []
    assert write(where, run_key, closed(AT + 90 * NS), opened()) == []  # what is over stays so
    reads = open_reads(where)
    (row,) = reads.incidents()
    reads.close()
    assert row.closed_at_ns == AT + 60 * NS


def test_a_second_open_incident_of_the_same_verdict_is_refused(where):
    run_key = store_run(where)
    write(where, run_key, opened())

    with pytest.raises(IncidentConflict, match="another agent"):
        write(where, run_key, opened(opened_at_ns=AT + NS))

    write(where, run_key, closed(AT + 60 * NS), opened(opened_at_ns=AT + 70 * NS))
    reads = open_reads(where)
    assert reads.incident_counts() == {("engine-a", "pool_leak"): 2}
    reads.close()


def test_incidents_are_filtered_the_open_ones_first(path):
    run_key = store_run(path)
    old = {"verdict": Verdict.STALLED, "opened_as": Verdict.STALLED}
    write(path, run_key, opened())
    write(path, run_key, opened(**old), closed(AT + 60 * NS, **old))
    later = {"opened_at_ns": AT + 100 * NS, **old}
    write(path, run_key, opened(**later), closed(AT + 200 * NS, **later))
    reads = open_reads(path)

    def keys(**wanted):
        return [row.key for row in reads.incidents(IncidentFilter(**wanted))]

    assert keys() == [1, 3, 2]
    assert keys(is_open=True) == [1]
    assert keys(is_open=False) == [3, 2]
    assert keys(since_ns=AT + 61 * NS) == [1, 3]
    assert keys(limit=1) == [1]
    assert keys(engine="engine-b") == []
    reads.close()


def test_the_oldest_closed_incidents_go_where_there_are_too_many(path, monkeypatch):
    monkeypatch.setattr(store_incidents, "MOST_INCIDENTS", 3)
    monkeypatch.setattr(store_incidents, "FEWER", 2)
    run_key = store_run(path)
    stalled = {"verdict": Verdict.STALLED, "opened_as": Verdict.STALLED}
    write(path, run_key, opened(opened_at_ns=AT - 100 * NS, **stalled))  # the oldest, and open
    for second in range(3):
        at = {"opened_at_ns": AT + second * NS}
        write(path, run_key, opened(**at), closed(AT + 9 * NS, **at))
    reads = open_reads(path)

    assert [row.key for row in reads.incidents()] == [1, 4]
    reads.close()


def test_a_diagnosis_is_the_same_after_its_text():
    full = judge(
        facts(
            waits={"pool": 900.0},
            books=leak_diagnosis() and facts().books,
            telemetry=facts().telemetry,
            missing={"past": "0 s of history"},
        )
    )
    for diagnosis in (full, leak_diagnosis(3, 5)):
        assert decode_diagnosis(encode_diagnosis(diagnosis)) == diagnosis


@pytest.mark.parametrize(
    "stored", ["", "[]", "{}", "null", '{"headline": 1}', "[" * 100_000, '{"headline": {}}']
)
def test_a_text_that_is_no_diagnosis_is_refused(stored):
    with pytest.raises(StateError, match="cannot be read"):
        decode_diagnosis(stored)


def test_damaged_evidence_is_said_and_the_list_goes_on(path):
    write(path, store_run(path), opened())
    execute(path, "UPDATE incidents SET evidence='{'")
    reads = open_reads(path)

    assert len(reads.incidents()) == 1
    with pytest.raises(IncidentDamaged, match="incident 1 cannot be read"):
        reads.incident(1)
    with pytest.raises(IncidentNotFound, match="no incident 2"):
        reads.incident(2)
    reads.close()
