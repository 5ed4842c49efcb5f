"""Batches read one after the other are followed as one, and nothing else changes."""

from pathlib import Path

from agent.ledger.joined_batches import joined_batches
from kvpulse.reader import StreamReader
from kvpulse.recorder import Recorder
from tests.agent.factories_ledger import new_ledger


def record(journal: Path, *, segment_bytes: int = 65_536) -> Path:
    recorder = Recorder.open(
        journal, "engine-a", total_blocks=64, block_size=16, segment_bytes=segment_bytes
    )
    for number in range(1, 1_500):
        while number % 50 == 0 and recorder._reserver.ready is None:
            pass
        recorder.arrive(number, 40, 5)
        recorder.admit(number)
        recorder.allocate(number, [1, 2, 3])
        recorder.free(number, [1, 2, 3], 0, 2)
        recorder.finish(number, 1, 40, 5, 45, 0)
        recorder.step(number, 1, 1, 1, 1, 0, 1, 1, 1)
    recorder.close()
    return recorder.directory


def read(stream: Path, max_events: int) -> list:
    with StreamReader(stream) as reader:
        return list(iter(lambda: reader.read(max_events), None))


def test_small_batches_of_one_segment_become_the_one_that_a_large_read_gives(tmp_path):
    stream = record(tmp_path)
    whole = read(stream, 65_536)
    assert len(whole) > 2

    joined = joined_batches(read(stream, 7))

    assert len(joined) == len(whole)
    for one, other in zip(joined, whole, strict=True):
        assert one.records.tobytes() == other.records.tobytes()
        assert one.lane.tobytes() == other.lane.tobytes()
        assert (one.seq0, one.lane_base) == (other.seq0, other.lane_base)
        assert one.position == other.position
        assert one.first_in_segment == other.first_in_segment


def test_a_gap_keeps_batches_apart(tmp_path):
    stream = record(tmp_path)
    sorted(stream.glob("*.seg"))[1].unlink()
    batches = read(stream, 100)
    gaps = [batch.gap for batch in batches if batch.gap is not None]

    joined = joined_batches(batches)

    assert len(gaps) == 1
    assert [batch.gap for batch in joined if batch.gap is not None] == gaps
    assert sum(len(batch.records) for batch in joined) == sum(len(b.records) for b in batches)


def test_a_ledger_counts_the_same_either_way(tmp_path):
    batches = read(record(tmp_path), 50)
    apart, together = new_ledger(batches[0]), new_ledger(batches[0])

    for batch in batches:
        apart.apply(batch)
    for batch in joined_batches(batches):
        together.apply(batch)

    assert apart.live().counters == together.live().counters
    assert apart.seq == together.seq == batches[-1].position.seq
