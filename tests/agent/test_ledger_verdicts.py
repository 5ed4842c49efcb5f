"""Leaks, holds, audits, waits and gaps are told as they are."""

import pytest

from kvpulse.events import Kind, WaitCause
from tests.agent.factories_ledger import Stored, follow, new_ledger
from tests.agent.factories_stream import MS, SECOND, ToyEngine, batches


@pytest.fixture
def engine(tmp_path):
    return ToyEngine(tmp_path)


def running(engine: ToyEngine, blocks: int):
    sequence = engine.arrive(1)
    engine.admit(sequence)
    engine.allocate(sequence, blocks)
    return sequence


def later(engine: ToyEngine, ns: int, *, steps: int = 0) -> None:
    for _ in range(steps):
        engine.step()
    engine.clock.now_ns += ns
    engine.pool()


def read(engine: ToyEngine, **how: int):
    engine.recorder.close()
    return follow(engine.recorder.directory, **how)


def test_blocks_whose_owner_ended_are_named_after_two_steps_and_a_second(engine):
    sequence, other = running(engine, 5), running(engine, 1)
    engine.finish(sequence, leak=2)
    later(engine, 900 * MS, steps=2)
    early_ledger, early = follow(engine.recorder.directory)
    later(engine, 300 * MS)

    ledger, stored = read(engine)

    assert early.leaks == [] == list(early_ledger.live().leaks)
    assert {(leak.block, leak.owner) for leak in stored.leaks} == {
        (block, sequence.owner) for block in sequence.table
    }
    assert ledger.live().balanced
    assert other.owner not in {leak.owner for leak in stored.leaks}


def test_one_step_is_not_enough_while_the_engine_works(engine):
    running(engine, 1)
    engine.finish(running(engine, 3), leak=1)
    later(engine, 5 * SECOND, steps=1)

    assert read(engine)[1].leaks == []


def test_a_leak_that_is_given_back_is_closed(engine):
    running(engine, 1)
    sequence = running(engine, 3)
    engine.finish(sequence, leak=1)
    later(engine, 2 * SECOND, steps=3)
    ledger = None
    stored = Stored()
    for batch in batches(engine.recorder.directory):
        ledger = ledger or new_ledger(batch)
        ledger.apply(batch)
    stored.put(ledger.take())

    engine.drop(sequence, list(sequence.table))
    later(engine, 2 * SECOND, steps=3)
    _, after = read(engine, max_events=14)

    assert [leak.ended_ns for leak in stored.leaks] == [None]
    assert ledger.live().leaks != ()
    assert all(leak.ended_ns is not None for leak in after.leaks[-1:])


def test_held_blocks_are_listed_apart_until_their_lease_ends(engine):
    running(engine, 1)
    sequence = running(engine, 2)
    engine.recorder.hold(sequence.owner, list(sequence.table), 1, 4000)
    engine.finish(sequence, leak=2)
    later(engine, 2 * SECOND, steps=3)
    ledger, stored = follow(engine.recorder.directory)
    later(engine, 3 * SECOND)

    _, after = read(engine)

    assert stored.leaks == []
    (held,) = ledger.live().held
    assert (held.owner, held.reason, len(held.blocks)) == (sequence.owner, "transfer", 2)
    assert len(after.leaks) == 2


def test_nothing_more_to_come_leaves_no_grace(engine):
    running(engine, 1)
    engine.finish(running(engine, 2), leak=1)
    ledger, stored = read(engine)

    ledger.close()
    delta = ledger.take()

    assert stored.leaks == []
    assert len(delta.leaks) == 1


def test_an_account_that_differs_fails_the_audit_and_says_in_what(engine):
    running(engine, 3)
    engine.pool()
    engine.pool(lie=1)

    ledger, stored = read(engine)

    assert (ledger.live().audits_passed, ledger.live().audits_failed) == (1, 1)
    assert [failure.detail for failure in stored.failures] == ["active: pool 4, ledger 3"]
    assert ledger.live().balanced is False


def test_an_event_that_was_never_recorded_breaks_the_audit(engine):
    sequence = running(engine, 3)
    engine.counts[engine.free.pop()] = 1
    sequence.table.append(0)
    engine.pool()

    ledger, _ = read(engine)

    assert ledger.live().audits_failed == 1


def test_a_double_free_is_counted_and_changes_nothing(engine):
    sequence = running(engine, 2)
    engine.recorder.free(sequence.owner, [sequence.table[0]], 1, 3)
    engine.pool()

    ledger, _ = read(engine)

    assert ledger.live().refused_frees == 1
    assert ledger.live().gauges["active_blocks"] == 2
    assert ledger.live().audits_failed == 0


def test_a_wait_shows_in_the_second_in_which_it_passes_while_it_lasts(engine):
    engine.clock.now_ns += SECOND - 123_456_789  # a whole second of the wall clock
    sequence = engine.arrive()
    engine.wait(sequence, int(WaitCause.POOL))
    for _ in range(3):
        later(engine, SECOND)

    ledger, stored = read(engine)

    assert [ns for ns in stored.sums(1, "wait_pool_ns").values() if ns] == [SECOND] * 3
    assert stored.total(3600, "wait_pool_ns") == 3 * SECOND
    assert ledger.live().waits["pool"].num_waiting == 1
    assert stored.requests[sequence.owner].wait_ns == {"pool": 3 * SECOND}


def test_waits_stated_at_one_moment_are_told_apart(engine):
    first, second = engine.arrive(), engine.arrive()
    engine.clock.now_ns += 10 * MS
    engine.wait(first, int(WaitCause.POOL))
    engine.wait(second, int(WaitCause.POOL_BEHIND))
    engine.wait(second, int(WaitCause.TOKEN_BUDGET))
    engine.clock.now_ns += 20 * MS
    engine.wait(second, int(WaitCause.BATCH_SLOTS))
    engine.admit(first)
    later(engine, 30 * MS)

    ledger, stored = read(engine)

    assert stored.requests[first.owner].wait_ns == {"engine_busy": 10 * MS, "pool": 20 * MS}
    waits = {"engine_busy": 10 * MS, "token_budget": 20 * MS, "batch_slots": 30 * MS}
    assert stored.requests[second.owner].wait_ns == waits
    assert ledger.live().waits["batch_slots"].num_waiting == 1
    assert sum(wait.num_waiting for wait in ledger.live().waits.values()) == 1


def test_waits_after_a_preemption_are_kept_apart(engine):
    sequence = engine.arrive()
    engine.clock.now_ns += 30 * MS
    engine.admit(sequence)
    engine.preempt(sequence)
    engine.clock.now_ns += 50 * MS
    engine.admit(sequence)
    engine.finish(sequence)

    row = read(engine)[1].requests[sequence.owner]

    assert (row.wait_ns, row.wait_after_preempt_ns) == ({"engine_busy": 30 * MS}, 50 * MS)
    assert (row.state, row.end_reason, row.preemptions) == ("finished", "stop", 1)


def test_a_sequence_that_leaves_the_queue_counts_its_wait(engine):
    sequence = engine.arrive()
    engine.clock.now_ns += 70 * MS
    engine.reject(sequence)

    ledger, stored = read(engine)

    assert ledger.live().histograms["queue"].sum_ns == 70 * MS
    assert stored.requests[sequence.owner].reject_reason == "queue_full"
    assert ledger.live().labelled["rejected"] == {"queue_full": 1}


def test_after_a_gap_the_next_keyframe_makes_the_ledger_whole_again(tmp_path):
    engine = ToyEngine(tmp_path, segment_bytes=8192, max_bytes=8192)
    kept = running(engine, 4)
    for _ in range(400):
        engine.finish(running(engine, 3))
        later(engine, 20 * MS)

    ledger, stored = read(engine)
    live = ledger.live()

    gaps = [gap for delta in stored.deltas for gap in delta.gaps]
    assert gaps
    assert live.balanced
    assert stored.failures == []
    assert live.gauges["active_blocks"] == 4
    row = stored.requests[kept.owner]
    assert (row.spans_gap, row.wait_ns, row.block_seconds) == (True, None, None)
    emitted = engine.recorder.emitted()
    for kind in Kind:
        assert live.stored[kind] + live.lost[kind] == emitted.get(kind, 0), kind
    assert stored.total(1, "events_lost") == sum(live.lost) > 0
