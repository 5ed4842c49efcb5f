"""The status: the worst recorded fact is the headline, and old values are never told as current."""

from dataclasses import replace

from agent.head_of_line import HeadOfLine
from agent.reads.models import RunState
from dashboard.frames.status import Facts, Tone, status_of
from tests.dashboard.factories_rows import engine_row

NOW = 1_796_000_000_000_000_000


def facts(engine=None, **changes) -> Facts:
    ordinary = Facts(
        engine=engine or engine_row(NOW),
        age_seconds=0.4,
        recent_seconds=60.0,
        waits_by_class={},
        oldest_wait_seconds=None,
        arrived=0,
        rejected=0,
        rejected_by_reason={},
        preempted=0,
        leaked_blocks=0,
    )
    return replace(ordinary, **changes)


def test_requests_that_wait_for_blocks_are_counted_with_the_oldest_and_the_pool():
    waiting = engine_row(NOW, waiting=12)

    status = status_of(
        facts(waiting, waits_by_class={"pool": 55.0, "scheduler": 3.0}, oldest_wait_seconds=4.2)
    )

    assert (
        status.headline == "Requests wait for blocks: 12 waiting, oldest 4.20 s, pool 97.9 % active"
    )
    assert status.tone is Tone.BAD


def test_waiting_for_a_batch_slot_is_not_called_a_wait_for_blocks():
    status = status_of(facts(engine_row(NOW, waiting=3), waits_by_class={"scheduler": 9.0}))

    assert status.headline.startswith("Requests wait for their turn (batch slots or token budget)")
    assert status.tone is Tone.NOTICE


def test_a_leak_comes_before_the_waits_it_causes():
    status = status_of(
        facts(engine_row(NOW, waiting=3), waits_by_class={"pool": 9.0}, leaked_blocks=2)
    )

    assert status.headline == (
        "2 blocks are still active after their owner ended: references never released"
    )
    assert any("Requests wait for blocks" in line for line in status.details)


def test_a_failed_audit_comes_before_a_leak():
    status = status_of(facts(replace(engine_row(NOW), audits_failed=4), leaked_blocks=2))

    assert "ledger differ: 4 audits failed" in status.headline


def test_values_that_nobody_renews_are_told_as_old():
    status = status_of(facts(age_seconds=90.0))

    assert status.headline == "Nothing new from the agent for 1 min 30 s: what follows is old"
    assert status.tone is Tone.UNKNOWN


def test_a_writer_that_vanished_is_told_apart_from_one_that_finished():
    dead = status_of(facts(replace(engine_row(NOW), state=RunState.DEAD)))
    finished = status_of(facts(replace(engine_row(NOW), state=RunState.FINISHED)))

    assert "is gone" in dead.headline
    assert "has finished" in finished.headline
    assert dead.rank < finished.rank


def test_refusals_name_the_commonest_reason():
    status = status_of(
        facts(arrived=80, rejected=12, rejected_by_reason={"queue_full": 9, "exceeds_pool": 3})
    )

    assert status.headline == (
        "12 of 80 requests refused in the last minute, most often queue full"
    )


def test_an_idle_engine_says_that_its_cache_is_reclaimable():
    idle = replace(engine_row(NOW), running=0, active_blocks=0, cached_blocks=40, free_blocks=472)

    assert status_of(facts(idle)).headline == (
        "Idle: no live sequence; 40 blocks kept cached, reclaimable"
    )


def test_an_engine_of_which_nothing_is_known_is_not_called_healthy():
    status = status_of(facts(engine_row(NOW, measured=False)))

    assert status.headline == "Nothing measured yet"
    assert status.tone is Tone.UNKNOWN


def test_the_head_of_the_line_is_named_beside_the_waits():
    head = HeadOfLine(131, 300, 44, 5, 3, 38, 9 * 10**9, 31 * 10**9)

    status = status_of(
        facts(engine_row(NOW, waiting=6), waits_by_class={"pool": 9.0}, head_of_line=head)
    )

    assert status.headline.startswith("Requests wait for blocks: 6 waiting")
    assert (
        "Sequence 131 is at the head of the line: it needs 300 blocks and 44 are free or"
        " reclaimable. 5 sequences wait behind it, with 38 blocks of runnable work; 31.0 s of their"
        " waiting is booked to it" in status.details
    )
