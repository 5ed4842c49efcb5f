"""Blocks that leaked in a gap: a leak by an unknown owner, under the same laws as all others."""

import numpy as np
import pytest

from agent.block_map import replay_map
from agent.ledger.ledger import Ledger
from agent.ledger.strays import Strays, strays_of
from agent.pool_usage import leak_report
from kvpulse.events import UNKNOWN_OWNER
from tests.agent.factories_ledger import Stored, new_ledger
from tests.agent.factories_stream import MS, SECOND, ToyEngine, batches
from tests.waiting import wait_until


@pytest.fixture
def engine(tmp_path):
    return ToyEngine(tmp_path)


def running(engine: ToyEngine, blocks: int):
    sequence = engine.arrive(1)
    engine.admit(sequence)
    engine.allocate(sequence, blocks)
    return sequence


def later(engine: ToyEngine, ns: int = 2 * SECOND, *, steps: int = 3) -> None:
    for _ in range(steps):
        engine.step()
    engine.clock.now_ns += ns
    engine.pool()


def pause(engine: ToyEngine) -> None:
    engine.recorder.pause_writing()


def go_on(engine: ToyEngine) -> None:
    wait_until(lambda: engine.recorder._reserver.ready is not None)
    engine.recorder.resume_writing()
    engine.step()  # a safe point: the keyframe


def leaked_in_a_gap(engine: ToyEngine, *, leak: int = 2):
    """One sequence leaks while nothing is recorded, another goes on living."""
    kept, lost = running(engine, 2), running(engine, 4)
    later(engine)
    pause(engine)
    engine.finish(lost, leak=leak)
    later(engine)
    go_on(engine)
    return kept, lost


def read(engine: ToyEngine) -> tuple[Ledger, Stored]:
    """Follow all that is recorded, taking after each 8 events; every law is checked each time."""
    ledger, stored = None, Stored()
    for batch in batches(engine.recorder.directory, max_events=8):
        ledger = ledger or new_ledger(batch)
        ledger.apply(batch)
        stored.put(ledger.take())
    stored.put(ledger.take())
    return ledger, stored


def places(leaks) -> set[tuple[int, int]]:
    return {(leak.block, leak.owner) for leak in leaks}


def test_blocks_left_over_by_a_gap_are_leaked_by_an_unknown_owner(engine):
    _, lost = leaked_in_a_gap(engine)
    later(engine)

    ledger, stored = read(engine)
    live = ledger.live()

    assert live.num_gaps == 1
    assert stored.failures == []
    assert live.balanced
    assert places(live.leaks) == {(block, UNKNOWN_OWNER) for block in lost.table}
    assert leak_report(live.leaks, cached_blocks=0).sentence == (
        "references never released: 2 blocks of an owner unknown, before a gap"
    )


def test_they_are_named_after_the_grace_that_every_leak_has(engine):
    leaked_in_a_gap(engine)
    later(engine, 900 * MS, steps=2)
    early = read(engine)[0].live().leaks
    later(engine, 300 * MS, steps=0)

    assert early == ()
    assert len(read(engine)[0].live().leaks) == 2


@pytest.mark.parametrize("at_once", [True, False])
def test_one_that_is_freed_later_is_no_leak_any_more(engine, at_once):
    _, lost = leaked_in_a_gap(engine)
    if not at_once:
        later(engine)
    first, second = lost.table
    engine.drop(lost, [first])
    later(engine)
    half = read(engine)[0].live()
    engine.drop(lost, [second])
    later(engine)

    ledger, stored = read(engine)

    assert places(half.leaks) == {(second, UNKNOWN_OWNER)}
    assert ledger.live().leaks == ()
    assert stored.failures == []
    ended = [leak.ended_ns is not None for leak in stored.leaks]
    assert ended.count(True) == ended.count(False) == (1 if at_once else 2)


def test_a_leak_named_before_the_gap_stays_its_owners(engine):
    running(engine, 1)
    first = running(engine, 3)
    engine.finish(first, leak=2)
    later(engine)
    before = read(engine)[1].leaks
    pause(engine)
    second = running(engine, 2)
    engine.finish(second, leak=1)
    engine.drop(first, first.table[:1])
    go_on(engine)
    later(engine)

    ledger, stored = read(engine)

    assert places(before) == {(block, first.owner) for block in (*first.table, before[0].block)}
    assert places(ledger.live().leaks) == {
        (first.table[0], first.owner),
        (second.table[0], UNKNOWN_OWNER),
    }
    assert len([leak for leak in stored.leaks if leak.ended_ns is not None]) == 1
    assert stored.failures == []


def test_what_leaked_before_the_newest_gap_is_not_told_again(engine):
    leaked_in_a_gap(engine)
    later(engine)
    pause(engine)
    later(engine)
    go_on(engine)
    later(engine)

    ledger, stored = read(engine)

    assert ledger.live().num_gaps == 2
    assert len(ledger.live().leaks) == len(stored.leaks) == 2


def test_a_leaked_block_that_others_share_is_leaked_still(engine):
    kept, lost = leaked_in_a_gap(engine, leak=1)
    engine.share(kept, lost.table[0])
    later(engine)
    engine.drop(kept, lost.table[:1])
    later(engine)

    ledger, stored = read(engine)

    assert places(ledger.live().leaks) == {(lost.table[0], UNKNOWN_OWNER)}
    assert stored.failures == []


def test_held_blocks_are_no_leak_after_a_gap_either(engine):
    running(engine, 1)
    sequence = running(engine, 2)
    engine.recorder.hold(sequence.owner, list(sequence.table), 1, 60_000)
    pause(engine)
    engine.finish(sequence, leak=2)
    go_on(engine)
    later(engine)

    ledger, stored = read(engine)

    assert ledger.live().leaks == ()
    assert stored.failures == []


def test_nothing_is_called_a_leak_while_holders_are_not_known(engine):
    running(engine, 1)
    engine.finish(running(engine, 3), leak=1)
    later(engine)
    ledger = None
    for batch in batches(engine.recorder.directory):
        ledger = ledger or new_ledger(batch)
        ledger.apply(batch)
    ledger.core.lose_sight()

    assert ledger.take().leaks == ()


def test_an_agent_that_resumes_knows_what_a_gap_left_over(engine):
    _, lost = leaked_in_a_gap(engine)
    later(engine)
    ledger, _ = read(engine)
    ledger._snapshot_due = True
    snapshot = ledger.take().snapshot
    resumed = Ledger.resume(snapshot)

    assert places(resumed.live().leaks) == {(block, UNKNOWN_OWNER) for block in lost.table}
    assert resumed.take().audits.failures == ()
    blocks = replay_map(snapshot.map_blob, [], at_ns=snapshot.t_ns)
    assert [int(blocks.owner[block]) for block in lost.table] == [-1, -1]
    assert UNKNOWN_OWNER not in blocks.ref_owner


def test_of_several_former_holders_as_many_are_kept_as_references_are_left():
    before = Strays(np.array([7, 8, 7]), np.array([1, 1, 2]))

    strays = strays_of(np.array([0, 2, 1, 3]), np.array([0, 1, 1, 1]), before)

    found = list(zip(strays.owner.tolist(), strays.block.tolist(), strict=True))
    assert found == [(7, 1), (UNKNOWN_OWNER, 3), (UNKNOWN_OWNER, 3)]


def test_a_damaged_count_is_not_taken_for_so_many_references():
    nobody = Strays(np.zeros(0, np.int64), np.zeros(0, np.int64))

    strays = strays_of(np.array([0, 0xFFFF_FFFE]), np.array([0, 0]), nobody)

    assert len(strays.owner) == 0
