"""A reader resumes anywhere, waits politely, and says clearly what it cannot read."""

import os
import shutil
import struct
import subprocess

import numpy as np
import pytest

from kvpulse.errors import NotAJournalError, UnsupportedVersionError
from kvpulse.events import Kind
from kvpulse.reader import StreamReader
from kvpulse.segment import COMMIT_OFFSET, STATE_OFFSET
from kvpulse.stream_values import GapReason, Position, expand_words
from tests.kvpulse.factories_journal import (
    added,
    batches,
    busy_keyframe,
    read_all,
    run_python,
    stored_and_lost,
)
from tests.kvpulse.test_rotation import fill_one_segment


def overwrite(path, offset: int, data: bytes) -> None:
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(data)


def record_offset(index: int) -> int:
    return 4096 + 32 * index


@pytest.fixture
def stream(record):
    """A finished stream of three segments, and what was emitted into it."""
    recorder = record(snapshot=busy_keyframe)
    for _ in range(2):
        fill_one_segment(recorder)
    recorder.allocate(5, [6, 7, 8])
    recorder.close()
    return recorder


@pytest.mark.parametrize("max_events", [1, 7, 100, 65_536])
def test_batches_of_any_size_give_the_same_records(stream, max_events):
    read = batches(stream.directory, max_events=max_events)

    assert stored_and_lost(read) == (stream.emitted(), {})
    records = np.concatenate([batch.records for batch in read])
    assert np.array_equal(records, np.concatenate([b.records for b in batches(stream.directory)]))
    assert all(
        len(batch.records) == 1 or len(batch.records) + len(batch.lane) <= 2 * max_events
        for batch in read
    )


def test_reading_goes_on_from_any_position(stream):
    whole = batches(stream.directory, max_events=40)
    for index, batch in list(enumerate(whole))[::7]:
        rest = batches(stream.directory, batch.position, max_events=40)
        assert [b.seq0 for b in rest] == [b.seq0 for b in whole[index + 1 :]]
        assert sum(len(b.records) for b in rest) == sum(len(b.records) for b in whole[index + 1 :])
        if rest:
            assert rest[-1].position == whole[-1].position


def test_a_writer_is_followed_while_it_writes(record):
    recorder = record()
    with recorder.reader() as reader:
        assert [len(b.records) for b in read_all(reader)] == [1]
        assert reader.read() is None
        recorder.allocate(1, [5, 6])
        batch = reader.read()
        assert expand_words(batch, 0).tolist() == [5, 6]
        assert (batch.seq0, batch.first_in_segment) == (1, False)
        assert reader.status().behind_records == 0
        recorder.admit(1)
        assert reader.status().behind_records == 1


def test_a_reader_needs_no_right_to_write(stream, tmp_path):
    read_only = tmp_path / "read-only"
    read_only.mkdir()
    done = subprocess.run(
        ["mount", "--bind", "-o", "ro", str(stream.directory), str(read_only)],
        capture_output=True,
        check=False,
    )
    if done.returncode:
        pytest.skip("only root may mount read-only here")
    try:
        with pytest.raises(OSError, match="Read-only"):
            (read_only / "x").write_text("")
        assert stored_and_lost(batches(read_only)) == (stream.emitted(), {})
        with StreamReader(read_only) as reader:
            assert reader.status().writer == "finished"
    finally:
        subprocess.run(["umount", str(read_only)], check=True)


def test_a_torn_tail_is_left_for_later(record):
    recorder = record()
    recorder.allocate(1, [5, 6])
    segment = recorder._segment
    overwrite(segment.path, record_offset(2), os.urandom(32))

    with recorder.reader() as reader:
        assert sum(len(b.records) for b in read_all(reader)) == 2
        recorder.admit(1)
        (batch,) = read_all(reader)
    assert batch.records["kind"].tolist() == [Kind.ADMIT]


def test_unknown_kinds_are_left_out_and_counted(record):
    recorder = record()
    recorder._emit(55, 0, 0, 1, 0, 0, 0)
    recorder.admit(1)
    recorder._emit_ids(56, 0, 0, 1, [1, 2, 3], 0)
    recorder.allocate(1, [9, 8])
    fill_one_segment(recorder)
    recorder.close()

    read = batches(recorder.directory)

    assert sum(batch.unknown for batch in read) == 2
    assert [batch.gap for batch in read if batch.gap] == []
    assert not {55, 56} & {int(kind) for batch in read for kind in batch.records["kind"]}
    assert stored_and_lost(read)[0] == recorder.emitted()
    assert read[-1].position.seq == sum(len(b.records) + b.unknown for b in read)


def test_another_format_version_is_named(stream):
    for path in stream.directory.glob("*.seg"):
        overwrite(path, 8, struct.pack("<I", 2))

    with pytest.raises(UnsupportedVersionError, match=r"journal format 2, this reader knows 1"):
        batches(stream.directory)


def test_a_file_that_is_no_journal_is_named(tmp_path):
    (tmp_path / "00000000.seg").write_bytes(b"SQLite format 3\0" + bytes(8192))

    with pytest.raises(NotAJournalError, match=r"starts with b'SQLite f', not b'KVPULSEJ'"):
        batches(tmp_path)


@pytest.mark.parametrize("number", [0, 1])
def test_a_segment_deleted_under_the_reader_is_an_exact_gap(stream, number):
    os.unlink(stream.directory / f"{number:08d}.seg")

    read = batches(stream.directory)

    stored, lost = stored_and_lost(read)
    assert added(stored, lost) == stream.emitted()
    (gap,) = [batch.gap for batch in read if batch.gap]
    assert gap.reason is GapReason.DELETED
    assert gap.end_seq - gap.first_seq == sum(lost.values()) - 2 * lost[Kind.ALLOCATE] // 3


def test_an_open_segment_can_still_be_read_after_it_was_deleted(stream):
    with StreamReader(stream.directory) as reader:
        read = [reader.read(max_events=10)]
        shutil.rmtree(stream.directory)
        read += read_all(reader)

    assert sum(len(b.records) for b in read) > 300
    assert read[0].position.segment == 0


def test_a_last_segment_deleted_after_the_end_is_told_by_the_loss_page(stream):
    os.unlink(stream.directory / "00000002.seg")

    read = batches(stream.directory)

    stored, lost = stored_and_lost(read)
    assert added(stored, lost) == stream.emitted()
    assert lost[Kind.KEYFRAME] == 1
    assert len(read[-1].records) == 0
    assert batches(stream.directory, read[-1].position) == []


@pytest.mark.parametrize(
    ("name", "offset", "data"),
    [
        ("seq", 8, b"\xff\xff\xff\xff"),
        ("kind", 12, b"\x63"),
        ("offset", 20, b"\xff\xff\xff\x7f"),
        ("n", 24, b"\xff\xff\x00\x00"),
        ("n slightly", 24, b"\x02\x00\x00\x00"),
        ("offset slightly", 20, b"\x91\x00\x00\x00"),
    ],
)
def test_a_damaged_record_is_a_gap_and_the_rest_is_read(stream, name, offset, data):
    # Record 3 of segment 1 is an `allocate` of three blocks.
    overwrite(stream.directory / "00000001.seg", record_offset(3) + offset, data)

    read = batches(stream.directory)

    stored, lost = stored_and_lost(read)
    assert added(stored, lost) == stream.emitted()
    assert 0 < sum(lost.values()) <= 6
    reasons = {batch.gap.reason for batch in read if batch.gap}
    assert reasons == {GapReason.DAMAGED}
    assert read[-1].position.lost == tuple(lost.get(k, 0) for k in range(64))


def test_damage_in_the_last_segment_is_settled_by_the_loss_page(stream):
    overwrite(stream.directory / "00000002.seg", record_offset(1) + 12, b"\xf0")

    read = batches(stream.directory)

    stored, lost = stored_and_lost(read)
    assert added(stored, lost) == stream.emitted()
    assert lost == {Kind.ALLOCATE: 3}


def test_a_damaged_header_costs_its_segment_and_no_more(stream):
    overwrite(stream.directory / "00000001.seg", 24, b"\x05")

    read = batches(stream.directory)

    stored, lost = stored_and_lost(read)
    assert added(stored, lost) == stream.emitted()
    assert [b.gap.reason for b in read if b.gap] == [GapReason.DAMAGED]


def test_a_commit_word_beyond_the_lane_is_read_as_the_lane(stream):
    path = stream.directory / "00000001.seg"
    overwrite(path, COMMIT_OFFSET, b"\xff" * 8)

    stored, lost = stored_and_lost(batches(stream.directory))

    assert stored == stream.emitted()
    assert lost == {}


def test_a_wrong_state_word_does_not_stop_the_reader(stream):
    overwrite(stream.directory / "00000000.seg", STATE_OFFSET, b"\x01")

    assert stored_and_lost(batches(stream.directory)) == (stream.emitted(), {})


def test_a_segment_cut_short_is_damage_and_not_a_crash(stream):
    path = stream.directory / "00000001.seg"
    os.truncate(path, record_offset(10))

    stored, lost = stored_and_lost(batches(stream.directory))

    assert added(stored, lost) == stream.emitted()


def test_a_pipe_in_a_segments_place_does_not_hang(stream):
    path = stream.directory / "00000001.seg"
    path.unlink()
    os.mkfifo(path)

    stored, lost = stored_and_lost(batches(stream.directory))

    assert added(stored, lost) == stream.emitted()


def test_a_link_in_a_segments_place_is_not_followed(stream):
    path = stream.directory / "00000001.seg"
    elsewhere = stream.directory / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)

    stored, lost = stored_and_lost(batches(stream.directory))

    assert added(stored, lost) == stream.emitted()
    assert lost[Kind.KEYFRAME] == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_reader_without_permission_is_told_whom_to_be(stream):
    code = (
        "import os, sys; from pathlib import Path; from kvpulse.segment_view import SegmentView\n"
        "os.chmod(sys.argv[1], 0o755); os.setuid(65534)\n"
        "try: SegmentView(Path(sys.argv[1]) / '00000000.seg', 0)\n"
        "except Exception as error: print(error)\n"
    )
    for parent in list(stream.directory.parents)[:4]:
        parent.chmod(0o755)

    done = run_python(code, stream.directory)

    assert "read them as that user or as root" in done.stdout, done


def test_a_position_of_a_stream_that_is_gone_reads_nothing(tmp_path):
    assert batches(tmp_path / "gone", Position(segment=3, record=4, seq=900)) == []


def test_numbers_go_on_beyond_32_bits(record):
    recorder = record(snapshot=busy_keyframe)
    recorder._base += 2**32 - 600
    for _ in range(3):
        fill_one_segment(recorder)
    recorder.close()

    read = batches(recorder.directory, Position(segment=1))

    records = np.concatenate([batch.records for batch in read])
    numbers = records["seq"].astype(np.int64)
    assert read[0].gap.end_seq < 2**32 < read[-1].position.seq
    assert set(np.diff(numbers).tolist()) == {1, 1 - 2**32}
    assert read[-1].position.counts == tuple(recorder.emitted().get(k, 0) for k in range(64))
