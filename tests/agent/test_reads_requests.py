"""Requests, marks, leaks, gaps and telemetry as the pages ask for them."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.errors import StoreUnreadable
from agent.ledger.delta import BrokenLaw, GapRow, LawEvidence, Leak, Named
from agent.reads.models import KindTotal, MarkKind, Position, RequestState, RunState
from agent.reads.reads import Reads, open_reads
from agent.store.store import Store
from agent.store.stream_id import StreamId
from kvpulse.events import UNKNOWN_OWNER
from tests.agent.factories_store import (
    NS,
    OFFSET,
    SHAPE,
    STREAM,
    chunk,
    delta,
    empty_store,
    kinds,
    progress,
    request,
)


@pytest.fixture
def where(tmp_path: Path) -> str:
    return empty_store(tmp_path)


@pytest.fixture
def reads(where: str) -> Iterator[Reads]:
    opened = open_reads(where)
    yield opened
    opened.close()


def test_a_store_that_is_damaged_later_is_said_plainly_with_its_place(tmp_path: Path) -> None:
    where = empty_store(tmp_path)
    reads = open_reads(where)
    with sqlite3.connect(where) as connection:
        connection.execute("ALTER TABLE runs RENAME TO elsewhere")

    with pytest.raises(StoreUnreadable) as caught:
        reads.engines()

    assert str(caught.value) == f"cannot read the store {where} just now: no such table: runs"
    reads.close()


def fill(where: str, **changes: object) -> int:
    with Store.open(where) as store:
        given = {"t_ns": 100 * NS, "chunks": (chunk(0, 1),), **changes}
        return store.writer(STREAM).commit(delta(1, **given), SHAPE, progress(1, behind=4))


REQUESTS = (
    request(1, state="finished", ended_ns=5 * NS, end_reason="stop", tenant="red", peak_blocks=9),
    request(
        20,
        state="running",
        tenant="blue",
        peak_blocks=3,
        wait_ns={"pool": 7 * NS, "batch_slots": 2 * NS},
        wait_pool_ns=7 * NS,
        wait_scheduler_ns=2 * NS,
        alloc_failures={"pool": 3},
        preempted_by=(1, 8),
        preemptions=2,
    ),
    request(
        30, state="rejected", ended_ns=30 * NS, end_reason="rejected", reject_reason="queue_full"
    ),
)


def owners(reads: Reads, key: int, low: int = 0, high: int = 100, **how: object) -> list[int]:
    found = reads.requests(key, OFFSET + low * NS, OFFSET + high * NS, **how)  # type: ignore[arg-type]
    return [row.owner for row in found]


def test_requests_alive_in_the_window_come_newest_first(where: str, reads: Reads) -> None:
    key = fill(where, requests=REQUESTS)

    assert owners(reads, key) == [30, 20, 1]
    assert owners(reads, key, 6, 25) == [20]
    assert owners(reads, key, 90, 100) == [20]  # still live
    assert owners(reads, key, limit=1) == [30]


def test_requests_are_chosen_by_state_and_tenant_and_sorted(where: str, reads: Reads) -> None:
    key = fill(where, requests=REQUESTS)

    assert owners(reads, key, state=RequestState.RUNNING) == [20]
    assert owners(reads, key, tenant="red") == [1]
    assert owners(reads, key, order="blocks") == [1, 20, 30]
    assert owners(reads, key, order="wait")[0] == 20


def test_who_waits_now_comes_with_what_it_needs(where: str, reads: Reads) -> None:
    waits = (
        request(3, needed_blocks=9),
        request(4, state="preempted", prompt_tokens=70),
        request(5, state="cancelled", ended_ns=9 * NS),
        request(6, state="running"),
    )
    key = fill(where, requests=waits)

    assert reads.waiting(key) == [(3, 9, 100), (4, None, 70)]


def test_an_unknown_order_is_refused(where: str, reads: Reads) -> None:
    key = fill(where, requests=REQUESTS)

    with pytest.raises(ValueError, match="newest"):
        owners(reads, key, order="newest")


def test_a_request_carries_its_waits_failures_and_preemptors(where: str, reads: Reads) -> None:
    key = fill(where, requests=REQUESTS)

    row = reads.request(key, 20)

    assert row is not None
    assert row.wait_ns == {"pool": 7 * NS, "batch_slots": 2 * NS}
    assert (row.wait_pool_ns, row.wait_quota_ns) == (7 * NS, None)
    assert (row.alloc_failures, row.alloc_failures_by_cause) == (3, {"pool": 3})
    assert row.preempted_by == [1, 8]
    assert row.arrived_at_ns == OFFSET + 20 * NS
    assert reads.request(key, 99) is None


def test_a_request_of_a_later_version_has_an_unknown_state(where: str, reads: Reads) -> None:
    key = fill(where, requests=(request(1, state="paused"),))

    assert reads.requests(key, OFFSET, OFFSET + 99 * NS)[0].state is RequestState.UNKNOWN


def test_marks_tell_restarts_gaps_leaks_failures_and_changed_settings(
    where: str, reads: Reads
) -> None:
    gap = GapRow(5, 9, 20 * NS, 30 * NS, "deleted", kinds(allocate=7, step=2))
    leaks = (Leak(3, 8, 40 * NS), Leak(4, 8, 40 * NS))
    seen = LawEvidence("4 active", "3 active", Named((7, 9), 2, (1, UNKNOWN_OWNER), 5))
    broken = BrokenLaw("audit", 50 * NS, 55 * NS, seen)
    with Store.open(where) as store:
        writer = store.writer(STREAM)
        config = {"model": "a", "block_size": 16}
        first = delta(1, t_ns=NS, chunks=(chunk(0, 1),), config=config)
        writer.commit(first, SHAPE, progress(1))
        stated = delta(9, t_ns=60 * NS, gaps=(gap,), leaks=leaks, broken_laws=(broken,))
        writer.commit(stated, SHAPE, progress(9))
        changed = {"model": "b", "block_size": 16}
        key = writer.commit(delta(10, t_ns=70 * NS, config=changed), SHAPE, progress(10))

    marks = reads.marks(key, OFFSET, OFFSET + 100 * NS)

    assert [(mark.kind, (mark.t_ns - OFFSET) // NS, mark.text) for mark in marks] == [
        (MarkKind.RESTART, 0, "run run-1 started"),
        (MarkKind.GAP, 20, "9 events lost: deleted"),
        (MarkKind.LEAK, 40, "2 blocks of sequence 8 leaked"),
        (
            *(MarkKind.AUDIT_FAILED, 50),
            "audit: 3 active, expected 4 active; blocks 7, 9; sequences 1, unknown and 3 more",
        ),
        (MarkKind.CONFIG, 70, "model a → b"),
    ]
    assert reads.marks(key, OFFSET + 71 * NS, OFFSET + 100 * NS) == []
    in_the_gap = reads.marks(key, OFFSET + 25 * NS, OFFSET + 26 * NS)
    assert [(mark.kind, mark.t_ns) for mark in in_the_gap] == [(MarkKind.GAP, OFFSET + 25 * NS)]
    assert reads.gaps(key)[0].lost == {"allocate": 7, "step": 2}
    assert [leak.block for leak in reads.leaks(key)] == [3, 4]
    (found,) = reads.broken_laws(key)
    assert (found.opened_at_ns, found.closed_at_ns) == (OFFSET + 50 * NS, OFFSET + 55 * NS)
    assert reads.telemetry(key).last_audit_failure == found.sentence


def test_totals_and_telemetry_tell_what_share_arrived(where: str, reads: Reads) -> None:
    key = fill(where, stored=kinds(allocate=75), lost=kinds(allocate=20, free=5), unknown=2)

    health = reads.telemetry(key)

    assert reads.totals(key) == {"allocate": KindTotal(75, 20), "free": KindTotal(0, 5)}
    assert (health.stored, health.lost, health.share_ratio) == (75, 25, 0.75)
    assert health.position == Position(0, 1, 1)
    assert (health.behind_records, health.unknown_records) == (4, 2)
    assert (health.num_chunks, health.chunk_bytes) == (1, len(b"events"))
    assert reads.telemetry(999).share_ratio is None


def test_an_engine_is_shown_by_its_newest_run(where: str, reads: Reads) -> None:
    with Store.open(where) as store:
        for number, seconds in (("r1", 10), ("r2", 500)):
            writer = store.writer(StreamId("engine-a", number))
            at = delta(1, t_ns=seconds * NS)
            writer.commit(at, SHAPE, progress(1))
            if number == "r1":
                writer.end(RunState.FINISHED)

    (engine,) = reads.engines()

    assert (engine.run_id, engine.state) == ("r2", RunState.LIVE)
    assert engine.active_blocks is None
    assert [run.run_id for run in reads.runs("engine-a")] == ["r2", "r1"]
    assert reads.runs("none") == []
