"""A law that does not hold is one condition: opened, naming blocks and owners, closed again."""

import pytest

from agent.ledger.broken_laws import REOPEN_NS, LawWatch
from agent.ledger.delta import LawFailure
from agent.ledger.ledger import Ledger
from kvpulse.events import FreeOutcome
from tests.agent.factories_ledger import Stored, new_ledger
from tests.agent.factories_live import live_state
from tests.agent.factories_stream import SECOND, ToyEngine, batches
from tests.waiting import wait_until


class Followed:
    """A toy engine, and a ledger that reads what is new of it."""

    def __init__(self, engine: ToyEngine) -> None:
        self.engine = engine
        self.reader = None
        self.ledger: Ledger | None = None
        self.stored = Stored()
        self.num_records = 0

    def look(self):
        """Follow what was recorded since, one account at a time; return what laws changed."""
        changed = []
        for batch in batches(self.engine.recorder.directory, max_events=1):
            if batch.position.seq <= self.num_records:
                continue
            self.num_records = batch.position.seq
            self.ledger = self.ledger or new_ledger(batch)
            self.ledger.apply(batch)
            delta = self.ledger.take()
            self.stored.put(delta)
            changed += delta.broken_laws
        return changed

    @property
    def open(self):
        return {broken.law: broken for broken in self.ledger.live().broken_laws}


@pytest.fixture
def followed(tmp_path):
    return Followed(ToyEngine(tmp_path))


def running(engine: ToyEngine, blocks: int):
    sequence = engine.arrive(1)
    engine.admit(sequence)
    engine.allocate(sequence, blocks)
    return sequence


def second(engine: ToyEngine) -> None:
    engine.step()
    engine.clock.now_ns += SECOND
    engine.pool()


def test_a_free_that_was_never_recorded_names_its_block_and_holder(followed):
    engine = followed.engine
    sequence = running(engine, 3)
    second(engine)
    lost = sequence.table[1]
    sequence.table.remove(lost)
    engine.counts[lost] = 0
    engine.free.append(lost)
    second(engine)

    (opened,) = followed.look()

    assert (opened.law, opened.closed_ns) == ("audit", None)
    named = opened.evidence.named
    assert (named.blocks, named.owners) == ((lost,), (sequence.owner,))
    assert opened.evidence.expected.startswith("active 2, free 22, sum of counts 2, checksum ")
    assert opened.evidence.found.startswith("active 3, free 21, sum of counts 3, checksum ")


def test_a_law_that_stays_broken_is_told_once_and_closed_by_the_next_audit_that_passes(followed):
    engine = followed.engine
    running(engine, 3)
    for _ in range(3):
        engine.clock.now_ns += SECOND
        engine.pool(lie=1)
    broken = followed.look()
    assert set(followed.open) == {"audit"}
    second(engine)

    closed = followed.look()

    assert len(broken) == 1
    assert followed.ledger.live().audits_failed == 3
    assert [(each.opened_ns, each.closed_ns) for each in closed] == [
        (broken[0].opened_ns, engine.clock.now_ns)
    ]
    assert followed.open == {}


def test_a_free_by_one_who_holds_nothing_names_the_blocks_and_the_holder(followed):
    engine = followed.engine
    holder, thief = running(engine, 2), running(engine, 1)
    second(engine)
    block = holder.table[0]
    engine.recorder.free(thief.owner, [block], 0, int(FreeOutcome.TO_FREE), thief.tenant)
    engine.counts[block] = 0
    engine.free.append(block)
    second(engine)

    laws = {broken.law: broken.evidence for broken in followed.look()}

    seen = laws["references_add_up"]
    assert set(seen.named.blocks) == {block, thief.table[0]}
    assert seen.named.owners == (holder.owner,)
    assert (seen.found, seen.expected) == ("blocks whose holders and count differ: 2", "none: 0")


def test_ids_that_the_pool_does_not_have_are_named_with_who_stated_them(followed):
    engine = followed.engine
    sequence = running(engine, 1)
    engine.recorder.allocate(sequence.owner, [990, 7000], sequence.tenant)
    second(engine)

    laws = {broken.law: broken.evidence for broken in followed.look()}

    assert laws["ids_in_pool"].named[:4] == ((990, 7000), 2, (sequence.owner,), 1)
    assert laws["ids_in_pool"].expected == "ids below 24"


def test_a_wait_of_one_that_does_not_wait_names_the_sequence_and_is_over_with_the_next_check(
    followed,
):
    engine = followed.engine
    sequence = running(engine, 1)
    engine.recorder.wait(sequence.owner, 4, 8, 0, sequence.tenant)
    second(engine)
    for _ in range(2):
        second(engine)

    changed = followed.look()

    assert [each.law for each in changed] == ["wait_of_waiting"] * 2
    assert changed[0].evidence.named.owners == (sequence.owner,)
    assert changed[0].closed_ns is None
    assert changed[1].closed_ns is not None


def test_what_a_keyframe_corrects_is_closed_by_the_next_check(tmp_path):
    engine = ToyEngine(tmp_path, segment_bytes=8192)
    followed = Followed(engine)
    sequence = running(engine, 3)
    second(engine)
    lost = sequence.table.pop()
    engine.counts[lost] = 0
    engine.free.append(lost)
    for _ in range(100):  # of 32 KiB, a segment holds 150 of these records
        wait_until(lambda: engine.recorder._reserver.ready is not None)
        second(engine)
    followed.look()

    told = {}
    for delta in followed.stored.deltas:
        for broken in delta.broken_laws:
            told[broken.law, broken.opened_ns] = broken
    laws = {broken.law: broken for broken in told.values()}

    assert set(laws) == {"audit", "audit_keyframe"}
    assert laws["audit_keyframe"].evidence.named[:4] == ((lost,), 1, (sequence.owner,), 1)
    assert all(broken.closed_ns is not None for broken in told.values())
    assert len(told) == 2


def test_a_resumed_agent_goes_on_with_the_condition_that_was_open(followed):
    engine = followed.engine
    running(engine, 3)
    engine.clock.now_ns += SECOND
    engine.pool(lie=1)
    (opened,) = followed.look()
    snapshot = followed.stored.deltas[-1].snapshot

    resumed = Ledger.resume(snapshot)
    followed.ledger = resumed
    engine.clock.now_ns += SECOND
    engine.pool(lie=1)
    again = followed.look()
    second(engine)
    (closed,) = followed.look()

    assert resumed.live().broken_laws == ()
    assert again == []
    assert (closed.law, closed.opened_ns) == ("audit", opened.opened_ns)
    assert closed.evidence == opened.evidence


def failed(t_ns: int, law: str = "states_add_up") -> LawFailure:
    return LawFailure(law, "1 is not 2", t_ns, "2", "1")


def test_a_law_that_breaks_again_soon_is_the_same_condition():
    watch = LawWatch()
    watch.broke(failed(10))
    watch.checked_all(11)
    watch.checked_all(12)
    watch.broke(failed(13))

    assert [(each.opened_ns, each.closed_ns) for each in watch.take()] == [(10, None)]

    watch.checked_all(14)
    watch.checked_all(15)
    watch.broke(failed(15 + REOPEN_NS))

    ends = {each.opened_ns: each.closed_ns for each in watch.take()}
    assert ends == {10: 15, 15 + REOPEN_NS: None}


def test_an_audit_is_closed_by_an_audit_alone():
    watch = LawWatch()
    watch.broke(failed(10, "audit"))
    for t_ns in (11, 12, 13):
        watch.checked_all(t_ns)
    assert set(watch.open) == {"audit"}

    watch.held(("audit",), 14)

    assert watch.open == {}


def test_many_blocks_are_named_a_few_with_their_number(followed):
    engine = followed.engine
    sequence = running(engine, 24)
    second(engine)
    followed.look()
    followed.ledger.core.blocks.count[:] = 2
    second(engine)

    laws = {broken.law: broken.evidence for broken in followed.look()}

    named = laws["references_add_up"].named
    assert (len(named.blocks), named.num_blocks) == (20, 24)
    assert named.owners == (sequence.owner,)


def test_a_run_without_a_broken_law_has_none_open():
    assert live_state().broken_laws == ()
    assert LawWatch().take() == ()
