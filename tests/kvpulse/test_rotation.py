"""Segments change without losing or repeating anything; each begins with the whole state."""

import os
import stat
from pathlib import Path

import pytest

from kvpulse.errors import ConfigError
from kvpulse.events import Kind
from kvpulse.keyframe_decoder import decode_keyframe
from kvpulse.reader import StreamReader
from kvpulse.recorder import Recorder
from kvpulse.segment_view import segment_numbers
from kvpulse.stream_values import GapReason, expand_words
from tests.kvpulse.factories_journal import (
    added,
    batches,
    busy_keyframe,
    of_kind,
    stored_and_lost,
)
from tests.waiting import wait_until


def fill_one_segment(recorder: Recorder) -> None:
    """Step on until the recorder writes into another segment."""
    wait_until(lambda: recorder._reserver.ready is not None)
    before = recorder._segment
    step = 0
    while recorder._segment is before:
        step += 1
        recorder.allocate(1, [1, 2, 3])
        recorder.step(step, 1, 1, 1, 1, 0, 1, 1, 1)


def test_each_segment_begins_with_a_keyframe_that_says_the_whole_state(record):
    recorder = record(snapshot=busy_keyframe)
    recorder.tenant("acme")
    for _ in range(3):
        fill_one_segment(recorder)
    recorder.close()

    firsts = [batch for batch in batches(recorder.directory) if batch.first_in_segment]

    assert len(firsts) == 4
    for batch in firsts:
        assert batch.records["kind"][0] == Kind.KEYFRAME
        keyframe, strings = decode_keyframe(expand_words(batch, 0))
        assert keyframe == busy_keyframe()
        assert strings == ({} if batch.seq0 == 0 else {1: "acme"})


def test_rotation_keeps_every_record_in_order(record):
    recorder = record(snapshot=busy_keyframe)
    for _ in range(4):
        fill_one_segment(recorder)
    recorder.close()

    read = batches(recorder.directory)

    stored, lost = stored_and_lost(read)
    assert stored == recorder.emitted()
    assert lost == {}
    assert [batch.gap for batch in read if batch.gap] == []
    sequence = [int(seq) for batch in read for seq in batch.records["seq"]]
    assert sequence == list(range(len(sequence)))
    assert read[-1].position.counts[Kind.ALLOCATE] == recorder.emitted()[Kind.ALLOCATE]


def test_a_keyframe_is_taken_only_when_the_engine_is_between_steps(record):
    in_the_middle = False

    def snapshot():
        assert not in_the_middle
        return busy_keyframe()

    recorder = record(snapshot=snapshot)
    recorder.step(1, 1, 1, 1, 1, 0, 1, 1, 1)
    in_the_middle = True
    wait_until(lambda: recorder._reserver.ready is not None)
    first = recorder._segment
    while recorder._segment is first:
        recorder.admit(1)
    in_the_middle = False
    recorder.step(2, 1, 1, 1, 1, 0, 1, 1, 1)
    recorder.close()

    read = batches(recorder.directory)
    assert recorder.missing_keyframes == 0
    assert len(of_kind(read, Kind.KEYFRAME)) == 2
    second = [batch for batch in read if batch.first_in_segment][1]
    assert second.records["kind"][:3].tolist() == [Kind.ADMIT, Kind.STEP, Kind.KEYFRAME]


@pytest.mark.parametrize("answer", [None, ValueError("not now")])
def test_a_snapshot_that_cannot_answer_costs_the_keyframe_and_nothing_else(record, answer):
    def snapshot():
        if isinstance(answer, Exception):
            raise answer
        return answer

    recorder = record(snapshot=snapshot, starts_empty=False)
    fill_one_segment(recorder)
    recorder.close()

    read = batches(recorder.directory)
    assert recorder.missing_keyframes == 2
    assert of_kind(read, Kind.KEYFRAME) == []
    assert stored_and_lost(read) == (recorder.emitted(), {})


def test_without_keyframes_each_segment_defines_its_strings_again(record):
    recorder = record(starts_empty=False)
    recorder.tenant("acme")
    fill_one_segment(recorder)
    recorder.close()

    second = [batch for batch in batches(recorder.directory) if batch.first_in_segment][1]
    assert second.records["kind"][0] == Kind.DEFINE
    assert expand_words(second, 0).tobytes() == b"acme"


def test_a_stream_starts_with_an_empty_pool_unless_told_otherwise(record):
    recorder = record(total_blocks=5, host_blocks=2)
    recorder.close()

    ((_, words),) = of_kind(batches(recorder.directory), Kind.KEYFRAME)
    assert words[12:] == [0] * 7


def test_more_ids_than_a_lane_holds_go_into_several_records(record):
    recorder = record()
    capacity = recorder._reserver.shape.lane_capacity
    wait_until(lambda: recorder._reserver.ready is not None)
    ids = list(range(capacity + 17))

    recorder.allocate(3, ids)
    recorder.close()

    read = batches(recorder.directory)
    stored, lost = stored_and_lost(read)
    back = [word for _, words in of_kind(read, Kind.ALLOCATE) for word in words]
    assert added(stored, lost) == recorder.emitted()
    assert back == ids[: len(back)]
    assert len(back) + lost.get(Kind.ALLOCATE, 0) == len(ids)
    assert len(back) > capacity // 2


def test_the_oldest_segments_go_at_the_size_bound_and_the_loss_is_exact(record):
    recorder = record(max_bytes=0, snapshot=busy_keyframe)
    for _ in range(6):
        fill_one_segment(recorder)
    recorder.close()

    read = batches(recorder.directory)
    stored, lost = stored_and_lost(read)

    kept = segment_numbers(recorder.directory)
    assert kept == list(range(kept[0], 7))
    assert 2 <= len(kept) <= 4
    assert added(stored, lost) == recorder.emitted()
    assert lost[Kind.ALLOCATE] > 0
    assert read[0].gap.reason is GapReason.DELETED
    assert read[0].gap.first_seq == 0
    assert read[0].gap.end_seq == read[0].seq0
    assert read[-1].position.lost[Kind.ALLOCATE] == lost[Kind.ALLOCATE]


def test_a_reader_overtaken_by_the_size_bound_counts_exactly_what_it_missed(record):
    recorder = record(max_bytes=0)
    recorder.allocate(1, [1, 2])
    with recorder.reader() as reader:
        first = reader.read()
        for _ in range(6):
            fill_one_segment(recorder)
        recorder.close()
        read = [first]
        while (batch := reader.read(max_events=50)) is not None:
            read.append(batch)

    stored, lost = stored_and_lost(read)
    assert added(stored, lost) == recorder.emitted()
    assert lost[Kind.STEP] > 0


def test_a_large_pool_gets_segments_whose_lane_holds_eight_keyframes(record):
    recorder = record(total_blocks=4096)

    shape = recorder._reserver.shape
    assert shape.lane_capacity >= 8 * 6 * 4096
    assert 4 * shape.record_capacity * 8 == 3 * shape.lane_capacity * 4
    assert Path(recorder._segment.path).stat().st_size == shape.file_bytes


def test_a_default_segment_is_16_mib(record):
    recorder = record(segment_bytes=16 * 2**20)

    assert Path(recorder._segment.path).stat().st_size == 16 * 2**20


def test_a_finished_run_gives_back_what_it_did_not_use(record):
    recorder = record(segment_bytes=16 * 2**20)
    recorder.allocate(1, list(range(64)))
    recorder.close()

    with StreamReader(recorder.directory) as reader:
        assert reader.status().bytes_on_disk < 64 * 1024
    assert stored_and_lost(batches(recorder.directory)) == (recorder.emitted(), {})


def test_directories_are_private_and_files_too(record):
    recorder = record()
    recorder.step(1, 1, 1, 1, 1, 0, 1, 1, 1)

    modes = {
        path: stat.S_IMODE(os.lstat(path).st_mode)
        for path in [recorder.directory.parent, recorder.directory, *recorder.directory.iterdir()]
    }
    assert {mode for path, mode in modes.items() if path.is_dir()} == {0o700}
    assert {mode for path, mode in modes.items() if not path.is_dir()} == {0o600}


@pytest.mark.parametrize("name", ["", ".", "../up", "a/b", "x" * 65, "a\n"])
def test_an_engine_name_that_is_no_directory_name_is_refused(tmp_path: Path, name):
    with pytest.raises(ConfigError, match="cannot name a directory"):
        Recorder.open(tmp_path, name, total_blocks=1, block_size=16)


def test_a_run_that_exists_is_not_written_into(record):
    recorder = record(run_id="run-1")

    with pytest.raises(ConfigError, match="exists already"):
        record(run_id="run-1")
    assert recorder.failure == ""


def test_a_closed_recorder_ignores_what_comes_after(record):
    recorder = record()
    recorder.admit(1)
    recorder.close()
    counted = recorder.emitted()

    recorder.admit(2)
    recorder.allocate(2, [1, 2, 3])
    recorder.step(1, 1, 1, 1, 1, 0, 1, 1, 1)
    recorder.close()

    assert recorder.emitted() == counted
    assert stored_and_lost(batches(recorder.directory))[0] == counted
