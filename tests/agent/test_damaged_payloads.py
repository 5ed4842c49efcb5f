"""Damage that the reader cannot see: the ledger says what it broke and follows on."""

import random
from dataclasses import replace

import numpy as np
import pytest

from agent.chunks.chunk import decode_chunk
from agent.ledger.ledger import Ledger
from agent.store.rows import request_rows
from kvpulse.events import HEADER_BYTES, RECORD_BYTES, Kind, PoolWord
from kvpulse.segment_view import SegmentView
from tests.agent.factories_ledger import Stored, follow, new_ledger
from tests.agent.factories_stream import MS, SECOND, ToyEngine, batches, record


def damage(stream, rng: random.Random) -> None:
    """Overwrite a few bytes of the records and lane words that were written."""
    for number, path in enumerate(sorted(stream.glob("*.seg"))):
        view = SegmentView(path, number)
        records = (HEADER_BYTES, HEADER_BYTES + RECORD_BYTES * max(1, view.live().commit))
        lane = (view.header.shape.lane_offset, path.stat().st_size)
        view.close()
        content = bytearray(path.read_bytes())
        for _ in range(rng.choice((1, 1, 3, 20))):
            low, high = records if rng.random() < 0.6 else lane
            at = rng.randrange(low, max(low + 1, min(high, len(content))))
            size = rng.choice((1, 4, 32))
            content[at : at + size] = rng.randbytes(len(content[at : at + size]))
        path.write_bytes(content)


@pytest.mark.parametrize("seed", range(25))
def test_any_bytes_are_followed_to_the_end_and_can_be_stored(tmp_path, seed):
    rng = random.Random(seed)
    stream = record(tmp_path, seed, 300, segment_bytes=32_768)
    damage(stream, rng)

    ledger, stored = follow(stream, max_events=rng.choice((50, 400, 65_536)))

    ledger.live()
    for delta in stored.deltas:
        for chunk in delta.chunks:
            decode_chunk(chunk.blob)
        times = [
            value
            for row in request_rows(1, delta.wall_offset_ns, delta.requests)
            for value in row
            if isinstance(value, int)
        ]
        times += [row.t_ns + delta.wall_offset_ns for row in delta.rollups]
        assert all(-(2**63) <= value < 2**63 for value in times)


@pytest.mark.parametrize("claimed", [2**63 - 1, 2**64 - 1, 2**62, 2**33, 3600 * SECOND])
def test_one_damaged_time_moves_no_other(tmp_path, claimed):
    stream = record(tmp_path, 3, 60)
    (batch,) = batches(stream)
    records = batch.records.copy()
    records["ts_ns"][20] = claimed
    ledger, stored = new_ledger(batch), Stored()

    ledger.apply(replace(batch, records=records))
    stored.put(ledger.take())

    assert ledger.core.t_ns == int(batch.records["ts_ns"][-1])
    (chunk,) = stored.deltas[0].chunks
    kept = decode_chunk(chunk.blob).records["ts_ns"]
    others = np.arange(len(kept)) != 20
    assert (kept[others] == batch.records["ts_ns"][others]).all()
    assert batch.records["ts_ns"][19] <= kept[20] <= batch.records["ts_ns"][21]


def test_a_damaged_total_fails_the_audit_and_asks_for_no_memory(tmp_path):
    engine = ToyEngine(tmp_path)
    engine.pool()
    engine.recorder.close()
    (batch,) = batches(engine.recorder.directory)
    at = int(np.flatnonzero(batch.records["kind"] == Kind.POOL)[0])
    lane = batch.lane.copy()
    lane[int(batch.records["first"][at]) - batch.lane_base + PoolWord.TOTAL] = 2**32 - 2
    ledger = new_ledger(batch)

    ledger.apply(replace(batch, lane=lane))

    assert ledger.core.blocks.total == 24
    assert ledger.core.totals.audits_failed == 1


def test_a_pool_that_grew_is_followed(tmp_path):
    engine = ToyEngine(tmp_path)
    sequence = engine.arrive()
    engine.admit(sequence)
    engine.total += 16
    engine.counts += [0] * 16
    engine.free += range(24, 40)
    engine.pool()
    engine.allocate(sequence, 40)
    engine.pool()
    engine.recorder.close()

    ledger, stored = follow(engine.recorder.directory)

    assert (ledger.core.blocks.total, ledger.core.blocks.active) == (40, 40)
    assert stored.failures == []


def test_a_deadline_of_never_is_stored_as_none(tmp_path):
    engine = ToyEngine(tmp_path)
    engine.recorder.arrive(1, 10, 10, deadline_ns=2**64 - 1)
    engine.recorder.arrive(2, 10, 10, deadline_ns=7 * SECOND)
    engine.recorder.close()

    _, stored = follow(engine.recorder.directory)

    rows = request_rows(1, 100, stored.requests.values())
    deadlines = {row[1]: row[9] for row in rows}
    assert deadlines == {1: None, 2: 7 * SECOND + 100}


def test_an_engine_that_uses_a_number_twice_is_followed(tmp_path):
    engine = ToyEngine(tmp_path)
    for _ in range(3):
        engine.next_owner = 1
        sequence = engine.arrive()
        engine.admit(sequence)
        engine.allocate(sequence, 3)
        engine.clock.now_ns += 10 * MS
        engine.finish(sequence)
    engine.pool()
    engine.recorder.close()

    ledger, stored = follow(engine.recorder.directory)

    assert ledger.core.owners.slots == {}
    assert stored.failures == []


def test_replaying_what_was_stored_gives_the_same_state(tmp_path):
    stream = record(tmp_path, 11, 200)
    (batch,) = batches(stream)
    records = batch.records.copy()
    records["ts_ns"][[30, 90]] = (2**62, 0)
    ledger = new_ledger(batch)
    ledger.apply(replace(batch, records=records[:1], lane=batch.lane))
    snapshot = ledger.take().snapshot
    ledger.apply(replace(batch, records=records[1:], seq0=batch.seq0 + 1, first_in_segment=False))
    chunks = ledger.take().chunks

    again = Ledger.resume(snapshot)
    for chunk in chunks:
        again.replay(chunk.blob)

    assert again.core.t_ns == ledger.core.t_ns
    assert (again.core.blocks.count == ledger.core.blocks.count).all()
    assert (again.core.totals.counters == ledger.core.totals.counters).all()
