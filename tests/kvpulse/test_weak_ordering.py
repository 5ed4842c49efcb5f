"""Where stores may overtake each other, a reader takes only what it saw committed a look before."""

import pytest

from kvpulse import segment
from kvpulse.reader import StreamReader
from kvpulse.segment import ORDERING_TOTAL, ORDERING_WEAK
from tests.kvpulse.factories_journal import added, batches, read_all, stored_and_lost
from tests.kvpulse.test_rotation import fill_one_segment


@pytest.mark.parametrize(
    ("machine", "ordering"),
    [("x86_64", ORDERING_TOTAL), ("aarch64", ORDERING_WEAK), ("riscv64", ORDERING_WEAK)],
)
def test_the_protocol_in_force_follows_the_machine(monkeypatch, machine, ordering):
    monkeypatch.setattr(segment.platform, "machine", lambda: machine)

    assert segment.ordering_in_force() == ordering


@pytest.fixture
def weak(record):
    """A recorder whose segments from the second on say that stores may be reordered."""
    recorder = record()
    recorder._reserver.ordering = ORDERING_WEAK
    fill_one_segment(recorder)
    return recorder


def test_a_record_is_handed_out_one_look_later(weak):
    with weak.reader() as reader:
        list(read_all(reader))
        weak.admit(1)
        assert reader.read() is None
        batch = reader.read()
        assert batch.records["owner"].tolist() == [1]
        weak.admit(2)
        weak.admit(3)
        assert reader.read() is None
        assert reader.read().records["owner"].tolist() == [2, 3]


def test_a_finished_stream_is_read_to_its_end(weak):
    weak.admit(1)
    weak.close()

    assert stored_and_lost(batches(weak.directory)) == (weak.emitted(), {})


def test_a_dead_stream_is_read_to_its_end_too(weak):
    weak.admit(1)
    emitted = weak.emitted()

    with StreamReader(weak.directory, is_alive=lambda: False) as reader:
        read = list(read_all(reader))

    stored, lost = stored_and_lost(read)
    assert added(stored, lost) == emitted
    assert lost == {}
