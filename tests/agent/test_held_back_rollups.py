"""Coarse rollups are handed out now and then, and a kill in between costs none of them."""

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from agent.ledger.delta import LedgerDelta, Snapshot
from agent.ledger.ledger import Ledger
from agent.rollups.scalars import COLUMN_INDEX
from kvpulse.reader import StreamReader
from kvpulse.recorder import Recorder
from tests.agent.factories_ledger import Stored, new_ledger, same_rows

SECOND_NS = 10**9
WALL_NS = 1_789_999_200 * SECOND_NS  # a whole hour


class SetClock:
    now_ns = 0

    def __call__(self) -> int:
        return self.now_ns


def record(journal: Path, times_ns: list[int]) -> Path:
    """Record one request, all of it, at each of some times."""
    clock = SetClock()
    recorder = Recorder.open(
        journal,
        "engine-a",
        total_blocks=64,
        block_size=16,
        clock=clock,
        wall_clock=lambda: WALL_NS + clock.now_ns,
    )
    owner = recorder.tenant("team")
    for number, now_ns in enumerate(times_ns, start=1):
        clock.now_ns = now_ns
        recorder.arrive(number, 40, 5, owner)
        recorder.allocate(number, [1, 2], owner)
        recorder.admit(number, owner)
        clock.now_ns += 1_000
        recorder.free(number, [1, 2], 0, 2, owner)
        recorder.finish(number, 1, 40, 5, 45, 0, owner)
        recorder.step(number, 40, 5, 1, 45, 0, 100, 200, 300)
    recorder.close()
    return recorder.directory


class Agent:
    """A ledger and what a store would hold of it; may be killed after any commit."""

    def __init__(self) -> None:
        self.stored = Stored()
        self.deltas: list[LedgerDelta] = []
        self._ledger: Ledger | None = None
        self._snapshot: Snapshot | None = None
        self._chunks: list[bytes] = []

    def follow(self, batch) -> None:
        self._ledger = self._ledger or new_ledger(batch)
        self._ledger.apply(batch)
        self._commit()

    def kill(self) -> None:
        assert self._snapshot is not None
        self._ledger = Ledger.resume(self._snapshot)
        for blob in self._chunks:
            self._ledger.replay(blob)
        self._ledger.replayed_to(self.deltas[-1].seq)

    def end(self) -> None:
        self._ledger.close()
        self._commit()

    def _commit(self) -> None:
        delta = self._ledger.take()
        self.stored.put(delta)
        self.deltas.append(delta)
        self._chunks += [chunk.blob for chunk in delta.chunks]
        if delta.snapshot is not None:
            self._snapshot, self._chunks = delta.snapshot, []


def batches_of(stream: Path, max_events: int) -> list:
    with StreamReader(stream) as reader:
        return list(iter(lambda: reader.read(max_events), None))


def finished(batches: list, *, killed_after: set[int]) -> Agent:
    agent = Agent()
    for number, batch in enumerate(batches):
        agent.follow(batch)
        if number in killed_after:
            agent.kill()
    agent.end()
    return agent


def tiers(delta: LedgerDelta) -> list[set[int]]:
    return [
        {row.tier_seconds for row in rows}
        for rows in (delta.rollups, delta.latencies, delta.labelled)
    ]


def test_a_tiers_rows_are_handed_out_where_an_interval_of_the_finer_one_begins(tmp_path):
    times = [SECOND_NS + n * SECOND_NS // 10 for n in range(640)]
    agent = finished(batches_of(record(tmp_path, times), 9), killed_after=set())

    # The first take holds a snapshot and the last one ends the run: both hand out everything.
    handed_out = [max(set().union(*tiers(delta)), default=0) for delta in agent.deltas[1:-1]]
    assert [handed_out.count(tier) for tier in (60, 3600)] == [5, 1]
    assert 55 <= handed_out.count(10) <= 58 < handed_out.count(1) // 4
    arrived = COLUMN_INDEX["arrived"]
    for tier in (1, 10, 60, 3600):
        rows = [row for row in agent.stored.rollups.values() if row.tier_seconds == tier]
        assert sum(row.values[arrived] for row in rows) == 640


def test_what_was_held_back_when_a_kill_came_is_stored_though_its_interval_is_over(tmp_path):
    # Two commits in the tenth second, then nothing until the next ten seconds, minute and hour.
    times = [9 * SECOND_NS, 9 * SECOND_NS + 10**8, 9 * SECOND_NS + 2 * 10**8, 7_300 * SECOND_NS]
    batches = batches_of(record(tmp_path, times), 4)
    whole = finished(batches, killed_after=set())
    early = [n for n, b in enumerate(batches) if b.records["ts_ns"][-1] < 10 * SECOND_NS]
    assert all(found <= {1} for found in tiers(whole.deltas[early[-1]]))

    killed = finished(batches, killed_after={early[-1]})

    same_rows(whole.stored, killed.stored)


def test_a_run_that_ends_after_a_kill_with_nothing_new_hands_out_what_was_held_back(tmp_path):
    batches = batches_of(record(tmp_path, [SECOND_NS + n for n in range(0, 10**6, 10**5)]), 9)

    killed = finished(batches, killed_after={len(batches) - 1})

    assert all(found <= {1} for found in tiers(killed.deltas[-2]))
    same_rows(finished(batches, killed_after=set()).stored, killed.stored)


@settings(max_examples=30, deadline=None)
@given(
    pauses=st.lists(
        st.sampled_from([10**8, 3 * 10**8, SECOND_NS, 7 * SECOND_NS, 2_500 * SECOND_NS]),
        max_size=30,
    ),
    max_events=st.integers(1, 20),
    kills=st.sets(st.integers(0, 60), max_size=8),
)
def test_kills_anywhere_change_no_row_of_any_tier(tmp_path_factory, pauses, max_events, kills):
    times = [sum(pauses[:at]) + SECOND_NS for at in range(len(pauses) + 1)]
    batches = batches_of(record(tmp_path_factory.mktemp("j"), times), max_events)

    whole = finished(batches, killed_after=set())
    killed = finished(batches, killed_after=kills)

    same_rows(whole.stored, killed.stored)
