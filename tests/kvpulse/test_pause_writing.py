"""Recording that is paused on request: nothing is written, and what is missing is told exactly."""

import pytest

from kvpulse.events import Kind
from kvpulse.keyframe import empty_keyframe
from kvpulse.stream_values import GapReason, WriterState
from tests.kvpulse.factories_journal import added, batches, stored_and_lost
from tests.waiting import wait_until


def step(recorder, number):
    recorder.step(number, 0, 1, 1, 1, 0, 1, 1, 1)


@pytest.fixture
def recorder(record):
    return record(snapshot=lambda: empty_keyframe(total_blocks=64, host_blocks=0))


def test_what_is_stated_meanwhile_is_counted_per_kind(recorder):
    recorder.allocate(1, [1, 2, 3])
    step(recorder, 0)

    recorder.pause_writing()
    recorder.allocate(2, [4, 5])
    recorder.free(1, [3, 2, 1], 0, 2)
    recorder.tenant("harbour")
    step(recorder, 1)

    counts = {Kind.ALLOCATE: 2, Kind.FREE: 3, Kind.DEFINE: 1, Kind.STEP: 1}
    assert recorder.not_written() == counts
    assert recorder.failure == "paused on request"


def test_a_reader_finds_all_that_was_stated_stored_or_told_as_lost(recorder):
    step(recorder, 0)
    for number in range(1, 40):
        if number % 10 == 3:
            recorder.pause_writing()
        if number % 10 == 6:
            wait_until(lambda: recorder._reserver.ready is not None)
            recorder.resume_writing()
        recorder.allocate(number, [number])
        recorder.free(number, [number], 0, 2)
        step(recorder, number)
    recorder.close()

    read = batches(recorder.directory)
    stored, lost = stored_and_lost(read)
    assert added(stored, lost) == recorder.emitted()
    lost = {kind: n for kind, n in lost.items() if n}
    assert lost == recorder.not_written()
    assert lost[Kind.STEP] >= 12, "four stretches of three steps"
    assert {batch.gap.reason for batch in read if batch.gap} == {GapReason.NOT_WRITTEN}


def test_it_goes_on_at_a_safe_point_with_a_keyframe(recorder):
    step(recorder, 0)
    recorder.pause_writing()
    step(recorder, 1)
    wait_until(lambda: recorder._reserver.ready is not None)
    recorder.resume_writing()

    recorder.admit(7)  # between two safe points: the state is not whole
    step(recorder, 2)
    recorder.admit(8)

    assert recorder.not_written() == {Kind.STEP: 2, Kind.ADMIT: 1}
    assert recorder.failure == ""
    last = batches(recorder.directory)[-1]
    assert [Kind(int(r["kind"])) for r in last.records] == [Kind.KEYFRAME, Kind.ADMIT]


def test_a_reader_sees_the_pause_while_it_lasts(recorder):
    step(recorder, 0)
    recorder.pause_writing()
    recorder.pause_writing()
    recorder.admit(1)

    with recorder.reader() as reader:
        status = reader.status()
    assert status.writer is WriterState.ALIVE
    assert status.paused
    assert status.not_written == 1


def test_a_stream_that_ends_while_paused_still_adds_up(recorder):
    step(recorder, 0)
    recorder.pause_writing()
    recorder.allocate(1, [1, 2])
    recorder.close()

    stored, lost = stored_and_lost(batches(recorder.directory))
    assert added(stored, lost) == recorder.emitted()
    assert lost[Kind.ALLOCATE] == 2
