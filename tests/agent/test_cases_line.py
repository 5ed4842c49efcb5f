"""Cases HO06 (who is at the head of the line) and HO15 (priorities in five classes)."""

import sqlite3

import pytest

from agent.head_of_line import Waiter, head_of_line
from agent.http.live_status import status_document
from agent.ledger.arrival import PRIORITY_LABELS
from kvpulse.events import FinishReason, WaitCause
from tests.agent.factories_case import Case, Seen
from tests.agent.factories_stream import SECOND
from tests.agent.test_cases_usage import scrape, view_of

X, Y, Z, HOLDER = 1, 2, 3, 9
POOL, BEHIND = int(WaitCause.POOL), int(WaitCause.POOL_BEHIND)


def a_line(folder, *, seconds: float = 30, stated: bool = True) -> Case:
    """X needs 1,000 blocks, Y and Z 10 each; 50 are free."""
    case = Case(folder, total_blocks=1_000)
    case.recorder.arrive(HOLDER, 950 * 16, 1)
    case.recorder.admit(HOLDER)
    case.take(HOLDER, list(range(950)))
    for owner, blocks in ((X, 1_000), (Y, 10), (Z, 10)):
        case.recorder.arrive(owner, blocks * 16, 1)
    case.recorder.wait(X, POOL, 8)
    if stated:
        case.recorder.allocate_failed(X, 1_000, 50, 0, POOL)
    case.recorder.wait(Y, BEHIND, 16, X)
    case.recorder.wait(Z, BEHIND, 16, X)
    for _ in range(int(seconds)):
        case.wait_seconds(1)
        case.account()
    return case


@pytest.mark.parametrize("stated", [True, False])
def test_the_head_of_the_line_is_named_with_the_work_and_the_wait_behind_it(  # HO06
    tmp_path, stated
):
    seen = a_line(tmp_path, stated=stated).seen()

    for head in (seen.live.head_of_line, seen.reads.head_of_line(seen.key)):
        assert (head.owner, head.needed_blocks, head.available_blocks) == (X, 1_000, 50)
        assert (head.num_behind, head.num_runnable, head.runnable_blocks) == (2, 2, 20)
        assert (head.booked_ns, head.waited_ns) == (60 * SECOND, 30 * SECOND)
        assert head.sentence == (
            "sequence 1 is at the head of the line: it needs 1000 blocks and 50 are free or"
            " reclaimable. 2 sequences wait behind it, with 20 blocks of runnable work; 60.0 s of"
            " their waiting is booked to it"
        )
    (engine,) = status_document(view_of(seen), seen.engine.last_commit_at_ns)["engines"]
    assert (engine["head_of_line"]["sequence"], engine["head_of_line"]["booked_seconds"]) == (X, 60)
    exported = scrape(seen)
    assert exported["kvpulse_head_of_line_booked_seconds", ""] == 60
    assert exported["kvpulse_head_of_line_runnable_blocks", ""] == 20
    rows = [seen.reads.request(seen.key, owner) for owner in (X, Y, Z)]
    assert [(row.wait_cause, row.blocker) for row in rows] == [
        ("pool", None),
        ("pool_behind", X),
        ("pool_behind", X),
    ]
    assert [row.blocked_others_ns for row in rows] == [60 * SECOND, 0, 0]


def test_waiting_behind_a_blocker_that_ends_stays_booked_to_it_and_stops(tmp_path):
    case = a_line(tmp_path, seconds=4)
    case.recorder.finish(X, int(FinishReason.CANCELLED), 16_000, 0, 0, 0)
    case.wait_seconds(3)
    case.recorder.admit(Y)
    case.recorder.wait(Z, POOL, 8)
    case.account()

    seen = case.seen()

    assert seen.reads.request(seen.key, X).blocked_others_ns == 8 * SECOND
    assert seen.reads.head_of_line(seen.key) is None
    assert seen.live.head_of_line is None


def test_another_blocker_is_booked_from_when_it_is_named(tmp_path):
    case = a_line(tmp_path, seconds=4)
    case.recorder.wait(Z, BEHIND, 16, Y)
    case.wait_seconds(2)
    case.account()

    seen = case.seen()

    booked = [seen.reads.request(seen.key, owner).blocked_others_ns for owner in (X, Y, Z)]
    assert booked == [(6 + 4) * SECOND, 2 * SECOND, 0]


def waiter(owner: int, needed: int | None, blocker: int = 0, arrived_ns: int = 0) -> Waiter:
    return Waiter(owner, arrived_ns or owner, "pool", blocker, needed)


def test_only_what_fits_together_is_runnable():
    line = [waiter(1, 500), *(waiter(owner, 20, blocker=1) for owner in range(2, 6))]

    head = head_of_line(line, available_blocks=50, booked_ns={}, now_ns=100)

    assert (head.num_behind, head.num_runnable, head.runnable_blocks) == (4, 2, 40)


def test_nobody_is_at_the_head_when_nobody_names_a_blocker():
    line = [waiter(1, 500), waiter(2, 10), waiter(3, 10, blocker=77)]

    assert head_of_line(line, available_blocks=50, booked_ns={}, now_ns=100) is None


def arrive_with(folder, priorities: list[int]) -> Seen:
    case = Case(folder)
    for owner, priority in enumerate(priorities, start=1):
        case.recorder.arrive(owner, 16, 1, priority=priority)
    case.account()
    case.wait_seconds(1)
    case.account()
    return case.seen()


def labels_of(seen: Seen) -> dict[str, float]:
    found = scrape(seen)
    return {k: v for (name, k), v in found.items() if name == "kvpulse_requests_by_priority_total"}


def test_priorities_have_five_labels_and_the_store_the_exact_one(tmp_path):  # HO15
    seen = arrive_with(tmp_path, [-7, -1, 0, 1, 42])

    assert labels_of(seen) == {"<-1": 1, "-1": 1, "0": 1, "1": 1, ">1": 1}
    exact = [seen.reads.request(seen.key, owner).priority for owner in range(1, 6)]
    assert exact == [-7, -1, 0, 1, 42]


def test_ten_thousand_priorities_still_have_five_labels(tmp_path):  # HO15
    seen = arrive_with(tmp_path, list(range(-5_000, 5_000)))

    assert labels_of(seen) == {"<-1": 4_999, "-1": 1, "0": 1, "1": 1, ">1": 4_998}
    waiting = {
        label: value
        for (name, label), value in scrape(seen).items()
        if name == "kvpulse_num_requests_waiting_by_priority"
    }
    assert set(waiting) == set(PRIORITY_LABELS)
    assert sum(waiting.values()) == 10_000
    with sqlite3.connect(tmp_path / "kvpulse.db") as store:
        (number,) = store.execute("SELECT COUNT(DISTINCT priority) FROM requests").fetchone()
        labels = store.execute(
            "SELECT DISTINCT label FROM labelled WHERE family='arrived_priority'"
        )
        assert number == 10_000
        assert {label for (label,) in labels} == set(PRIORITY_LABELS)
