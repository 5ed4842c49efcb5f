"""The block map at any moment equals a plain replay of the journal up to it."""

from collections import defaultdict
from pathlib import Path

import pytest

from agent.ledger.delta import GapRow
from agent.reads.reads import Reads, open_reads
from agent.store.store import Store
from agent.store.stream_id import StreamId
from kvpulse.command import main as kvpulse
from kvpulse.events import Kind
from kvpulse.reader import StreamReader, list_streams
from kvpulse.stream_values import expand_words
from tests.agent.factories_store import NS, SHAPE, delta, empty_store, kinds, progress
from tests.agent.simulated_writer import record


class PlainMap:
    """Owners of each block, followed one record at a time."""

    def __init__(self) -> None:
        self.owners: dict[int, list[int]] = defaultdict(list)

    def follow(self, kind: int, owner: int, ids: list[int]) -> None:
        for block in ids:
            if kind in (Kind.ALLOCATE, Kind.SHARE):
                self.owners[block].append(owner)
            elif kind == Kind.FREE:
                self.owners[block].remove(owner)

    def held(self) -> dict[int, list[int]]:
        return {block: sorted(owners) for block, owners in self.owners.items() if owners}


@pytest.fixture
def stored(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Path, Reads]:
    monkeypatch.setenv("KVPULSE_COMMIT_EVENTS", str(getattr(request, "param", 65_536)))
    journal, store = tmp_path / "journal", empty_store(tmp_path)
    record(journal, num_requests=30)
    assert kvpulse(["agent", "--once", "--journal", str(journal), "--store", store]) == 0
    return journal, open_reads(store)


def plain_maps(journal: Path, moments: list[int]) -> list[dict[int, list[int]]]:
    """Return who holds what at each engine time, oldest first."""
    (stream,) = list_streams(journal)
    plain, found = PlainMap(), []
    with StreamReader(stream) as reader:
        while (batch := reader.read()) is not None:
            for index, one in enumerate(batch.records):
                while len(found) < len(moments) and one["ts_ns"] > moments[len(found)]:
                    found.append(plain.held())
                ids = expand_words(batch, index)[: one["n"]].tolist()
                plain.follow(int(one["kind"]), int(one["owner"]), ids)
    return found + [plain.held()] * (len(moments) - len(found))


@pytest.mark.parametrize("stored", [65_536, 400], ids=["big", "small"], indirect=True)
def test_the_map_at_every_moment_is_that_of_a_plain_replay(stored: tuple[Path, Reads]) -> None:
    journal, reads = stored
    (engine,) = reads.engines()
    assert engine.last_event_at_ns is not None
    span = engine.last_event_at_ns - engine.started_at_ns
    offset = 1_790_000_000 * NS  # of the simulated clock
    moments = [engine.started_at_ns - offset + span * i // 37 for i in range(38)]

    expected = plain_maps(journal, moments)

    assert sum(map(len, expected)) > 1000
    for moment, held in zip(moments, expected, strict=True):
        blocks = reads.block_map(engine.run_key, moment + offset)
        assert blocks is not None
        assert blocks.exact
        assert blocks.at_ns == moment + offset
        owners = {block: sorted(owners) for block, owners in enumerate(blocks.owners) if owners}
        assert owners == held
        assert {b for b, state in enumerate(blocks.state.tolist()) if state == 2} == set(held)
        assert blocks.count.tolist() == [len(o) for o in blocks.owners]
    reads.close()


def test_a_moment_after_the_last_event_is_answered_with_the_last_state(
    stored: tuple[Path, Reads],
) -> None:
    _, reads = stored
    (engine,) = reads.engines()

    newest = reads.block_map(engine.run_key)
    later = reads.block_map(engine.run_key, 2**62)

    assert newest is not None
    assert later is not None
    assert newest.at_ns == later.at_ns == engine.last_event_at_ns
    assert newest.state.tolist() == later.state.tolist()
    reads.close()


def test_a_moment_before_the_run_is_answered_with_the_first_snapshot_and_says_so(
    stored: tuple[Path, Reads],
) -> None:
    _, reads = stored
    (engine,) = reads.engines()

    early = reads.block_map(engine.run_key, engine.started_at_ns - 5 * NS)

    assert early is not None
    assert not early.exact
    assert early.age_ns == -5 * NS
    reads.close()


def test_after_a_gap_the_map_is_not_called_exact(stored: tuple[Path, Reads]) -> None:
    journal, reads = stored
    (engine,) = reads.engines()
    (stream,) = list_streams(journal)
    with Store.open(str(journal.parent / "kvpulse.db")) as store:
        with store._transaction() as connection:  # an ended run is nobody's to write
            connection.exec_driver_sql("UPDATE runs SET state='live'")
        writer = store.writer(StreamId("sim-a", stream.name))
        assert writer.position is not None
        end = (engine.last_event_at_ns or 0) - 1_790_000_000 * NS
        seq = writer.position.seq
        gap = GapRow(seq, seq + 5, end, end + NS, "deleted", kinds(allocate=5))
        missing = delta(seq + 5, t_ns=end + NS, wall_offset_ns=1_790_000_000 * NS, gaps=(gap,))
        writer.commit(missing, SHAPE, progress(seq + 5))

    before = reads.block_map(engine.run_key, (engine.last_event_at_ns or 0) - 1)
    after = reads.block_map(engine.run_key, (engine.last_event_at_ns or 0) + NS)

    assert before is not None
    assert after is not None
    assert (before.exact, after.exact) == (True, False)
    reads.close()


def test_a_run_that_the_store_does_not_know_has_no_map(tmp_path: Path) -> None:
    reads = open_reads(empty_store(tmp_path))

    assert reads.block_map(1) is None
    assert reads.engines() == []
    reads.close()
