"""A chunk gives its records back, costs little, and survives being lied to."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.chunks.builder import ChunkBuilder
from agent.chunks.chunk import Stretch, decode_chunk, encode_chunk
from agent.errors import ChunkError
from agent.ledger.event_columns import columns_of
from kvpulse.events import Kind
from kvpulse.stream_values import event_counts
from tests.agent.factories_stream import batches, record


@pytest.fixture(scope="module")
def stretch(tmp_path_factory) -> Stretch:
    batch = next(batches(record(tmp_path_factory.mktemp("journal"), 7, 600)))
    return Stretch(batch.seq0, batch.records, batch.lane, batch.lane_base)


@pytest.fixture(scope="module")
def chunk(stretch):
    return encode_chunk(stretch, int(event_counts(stretch.records).sum()))


def words(stretch: Stretch) -> list[list[int]]:
    events = columns_of(stretch.records, stretch.lane, stretch.lane_base)
    kinds = stretch.records["kind"].tolist()
    return [events.words(i) if kinds[i] != Kind.KEYFRAME else [] for i in range(len(kinds))]


def test_records_and_words_come_back(stretch, chunk):
    again = decode_chunk(chunk.blob)

    same = [name for name in stretch.records.dtype.names if name not in ("first", "n")]
    for name in same:
        assert (again.records[name] == stretch.records[name]).all(), name
    assert words(again) == words(stretch)
    assert again.seq0 == stretch.seq0
    assert chunk.num_records == len(stretch.records)


def test_stretches_that_follow_each_other_become_one_chunk(stretch, chunk):
    builder = ChunkBuilder()
    middle = len(stretch.records) // 2
    for part in (stretch.records[:middle], stretch.records[middle:]):
        builder.add(Stretch(stretch.seq0, part, stretch.lane, stretch.lane_base))

    (joined,) = builder.take()

    assert joined.num_events == chunk.num_events
    assert words(decode_chunk(joined.blob)) == words(stretch)


def test_a_cut_parts_chunks_at_a_gap(stretch):
    builder = ChunkBuilder()
    builder.add(stretch)
    builder.cut()
    builder.add(stretch)

    assert len(builder.take()) == 2


def test_content_hashes_are_counted_apart(stretch, chunk):
    assert (stretch.records["kind"] == Kind.CACHE).any()
    assert 0 < chunk.hash_bytes < len(chunk.blob)


@given(position=st.integers(0, 10_000), value=st.integers(0, 255))
def test_a_changed_byte_is_noticed_or_changes_nothing(stretch, chunk, position, value):
    blob = bytearray(chunk.blob)
    blob[position % len(blob)] = value

    try:
        again = decode_chunk(bytes(blob))
    except ChunkError:
        return
    assert words(again) == words(stretch)


@given(st.binary(max_size=400))
def test_random_bytes_are_refused(blob):
    with pytest.raises(ChunkError):
        decode_chunk(b"\x01" + blob)


@pytest.mark.parametrize("keep", [0, 5, 14, 60, -1])
def test_a_cut_off_chunk_is_refused(chunk, keep):
    with pytest.raises(ChunkError):
        decode_chunk(chunk.blob[:keep])


def test_a_chunk_of_a_later_version_is_refused_by_name(chunk):
    with pytest.raises(ChunkError, match="version 9"):
        decode_chunk(b"\x09" + chunk.blob[1:])


def test_a_frame_that_would_grow_beyond_its_claim_is_refused(chunk):
    blob = bytearray(chunk.blob)
    blob[6:10] = np.uint32(10).tobytes()

    with pytest.raises(ChunkError, match="fit"):
        decode_chunk(bytes(blob))
