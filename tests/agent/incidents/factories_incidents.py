"""Diagnoses and incidents that state only what a test is about."""

from dataclasses import replace
from typing import Any

from agent.reads.models import Leak
from agent.store.connection import parse_address
from agent.store.incidents import IncidentWriter
from agent.store.store import Store
from agent.triage.facts import BookFacts
from agent.triage.incidents import Change, CloseReason, Incident, IncidentChange
from agent.triage.judge import judge
from agent.triage.verdicts import Diagnosis, Verdict
from tests.agent.factories_facts import facts
from tests.agent.factories_store import NS, OFFSET, SHAPE, STREAM, delta, progress

AT = OFFSET + 100 * NS


def leak_diagnosis(*blocks: int) -> Diagnosis:
    """Return what triage says of an engine that leaks blocks of sequence 9."""
    leaks = tuple(Leak(block, 9, AT, None) for block in blocks or (7,))
    return judge(facts(books=BookFacts(300.0, leaks=leaks)))


def incident(**changes: Any) -> Incident:
    """Return an open incident of a leak."""
    diagnosis = leak_diagnosis()
    plain = Incident(
        engine=STREAM.engine,
        run_id=STREAM.run_id,
        verdict=Verdict.POOL_LEAK,
        opened_as=Verdict.POOL_LEAK,
        opened_at_ns=AT,
        seen_at_ns=AT + 20 * NS,
        opening=diagnosis,
        diagnosis=diagnosis,
        finding=diagnosis.headline,
        peak_at_ns=AT + 10 * NS,
        peak_impact=2.5,
    )
    return replace(plain, **changes)


def opened(**changes: Any) -> IncidentChange:
    """Return the opening of one."""
    return IncidentChange(Change.OPENED, incident(**changes))


def closed(at_ns: int, **changes: Any) -> IncidentChange:
    """Return the end of one."""
    over = incident(seen_at_ns=at_ns, **changes).closed(CloseReason.CLEARED, at_ns)
    return IncidentChange(Change.CLOSED, over)


def store_run(where: str) -> int:
    """Put a run of `STREAM` into a store; return its key."""
    with Store.open(where) as store:
        writer = store.writer(STREAM)
        writer.commit(delta(1), SHAPE, progress(1))
        assert writer.run_key is not None
        writer.release()
        return writer.run_key


def write(where: str, run_key: int, *changes: IncidentChange) -> list[IncidentChange]:
    """Store changes of a run at a moment."""
    writer = IncidentWriter.open(parse_address(where))
    try:
        return writer.write(run_key, changes, now_ns=AT + 30 * NS)
    finally:
        writer.close()
