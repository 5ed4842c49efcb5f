"""A window's recording is distilled from records, written, read back; damaged files are refused."""

import numpy as np
import pytest

from kvpulse.errors import RecordingDamaged
from kvpulse.events import FinishReason
from kvpulse.recording_file import read_recording, write_recording
from kvpulse.window_recording import UNKNOWN, WindowRecorder, WindowRecording
from tests.kvpulse.factories_journal import batches

MS = 1_000_000


class Clock:
    def __init__(self):
        self.now = 10 * MS

    def __call__(self):
        self.now += MS
        return self.now


@pytest.fixture
def stream(record):
    """Return a finished stream of three requests, one of which was cancelled, and two steps."""
    recorder = record(clock=Clock())
    recorder.arrive(1, 64, 8, priority=-2, tier=1, hashes=[2**63 + 5, 7], tenant=3)
    recorder.arrive(2, 16, 4, deadline_ns=500 * MS)
    recorder.step(0, 80, 0, 2, 80, 0, MS, 2**33, 5)
    recorder.first_token(1)
    recorder.finish(1, FinishReason.STOP, 64, 5, 68, 0)
    recorder.finish(2, FinishReason.CANCELLED, 16, 0, 0, 0)
    recorder.arrive(3, 10, 4)
    recorder.step(1, 0, 1, 1, 70, 0, 0, 9 * MS, 0)
    recorder.close()
    return recorder


def distilled(stream, *, start_ns=0, end_ns=10**12) -> WindowRecording:
    recorder = WindowRecorder(start_ns, end_ns)
    for batch in batches(stream.directory):
        recorder.take(batch.records, batch.lane, batch.lane_base)
    return recorder.recording({"max_batch": 4})


def test_requests_and_steps_are_those_that_were_recorded(stream):
    found = distilled(stream)

    requests = {name: values.tolist() for name, values in found.requests.items()}
    assert requests["prompt_tokens"] == [64, 16, 10]
    assert requests["output_tokens"] == [5, UNKNOWN, UNKNOWN]
    assert requests["priority"] == [-2, 0, 0]
    assert requests["tier"] == [1, 0, 0]
    assert requests["tenant"] == [3, 0, 0]
    assert requests["num_hashes"] == [2, 0, 0]
    assert found.hashes.tolist() == [2**63 + 5, 7]
    assert requests["first_token_ns"][0] > requests["arrived_ns"][0] > 0
    assert requests["first_token_ns"][1:] == [UNKNOWN, UNKNOWN]
    assert requests["cancelled_ns"][0] == UNKNOWN
    assert requests["cancelled_ns"][1] > requests["arrived_ns"][1]
    assert requests["deadline_ns"][1] == 500 * MS - requests["arrived_ns"][1]
    assert found.steps["total_ns"].tolist() == [MS + 2**33 + 5, 9 * MS]
    assert found.steps["prefill_tokens"].tolist() == [80, 0]
    assert found.steps["decode_tokens"].tolist() == [0, 1]
    assert found.steps["context_tokens"].tolist() == [80, 70]


def test_a_request_counts_by_its_arrival_and_its_end_may_come_later(stream):
    whole = distilled(stream)
    third = int(whole.requests["arrived_ns"][2])

    found = distilled(stream, end_ns=third)

    assert found.num_requests == 2
    assert found.num_steps == 1
    assert found.requests["output_tokens"].tolist() == [5, UNKNOWN]
    late = distilled(stream, start_ns=third)
    assert late.requests["arrived_ns"].tolist() == [0]


def test_words_that_lie_outside_the_lane_are_left_out(stream):
    recorder = WindowRecorder(0, 10**12)
    for batch in batches(stream.directory):
        recorder.take(batch.records, batch.lane[:0], batch.lane_base)
        recorder.take(batch.records, batch.lane, batch.lane_base + 1_000_000)

    found = recorder.recording({})

    assert found.num_requests == found.num_steps == 0


def test_a_file_gives_back_what_was_written(stream, tmp_path):
    recording = distilled(stream)
    path = tmp_path / "a.kvrec"

    write_recording(recording, path)

    found = read_recording(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert (found.window_ns, found.fingerprint) == (recording.window_ns, {"max_batch": 4})
    for name, values in (*recording.requests.items(), *recording.steps.items()):
        column = {**found.requests, **found.steps}[name]
        assert np.array_equal(column, values), name
    assert np.array_equal(found.hashes, recording.hashes)
    with pytest.raises(FileExistsError):
        write_recording(recording, path)


def test_damaged_files_are_refused_and_never_believed(stream, tmp_path):
    path = tmp_path / "a.kvrec"
    write_recording(distilled(stream), path)
    whole = path.read_bytes()
    for cut in range(0, len(whole), 97):
        path.write_bytes(whole[:cut])
        with pytest.raises(RecordingDamaged):
            read_recording(path)


def test_columns_that_contradict_each_other_are_refused(stream, tmp_path):
    recording = distilled(stream)
    wrong = {
        "order": {"arrived_ns": recording.requests["arrived_ns"][::-1]},
        "hashes": {"num_hashes": recording.requests["num_hashes"] + 1},
        "length": {"tier": recording.requests["tier"][:1]},
        "tokens": {"prompt_tokens": recording.requests["prompt_tokens"] + 2**40},
    }
    for name, columns in wrong.items():
        changed = WindowRecording(
            recording.window_ns,
            {},
            recording.requests | columns,
            recording.hashes,
            recording.steps,
        )
        write_recording(changed, tmp_path / name)
        with pytest.raises(RecordingDamaged):
            read_recording(tmp_path / name)
