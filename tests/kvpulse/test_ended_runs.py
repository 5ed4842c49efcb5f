"""What earlier runs keep is bounded by the next run, and every loss stays known per kind."""

import shutil
from pathlib import Path

import pytest

from kvpulse.disk_usage import bytes_on_disk
from kvpulse.ended_run import ENDED_FILE
from kvpulse.events import Kind
from kvpulse.reader import StreamReader
from kvpulse.stream_values import GapReason
from tests.kvpulse.factories_earlier_runs import (
    SEGMENT_BYTES,
    earlier_run,
    finished_runs,
    mark_ended,
    segment_names,
)
from tests.kvpulse.factories_journal import added, batches, read_all, stored_and_lost
from tests.kvpulse.test_lifetime import state_seen_from_outside
from tests.waiting import wait_until

TIGHT = {"max_bytes": 3 * SEGMENT_BYTES, "segment_bytes": SEGMENT_BYTES}


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "journal"


def looked(*runs: Path) -> None:
    """Wait until the helper has seen that these runs are over."""
    wait_until(lambda: all((run / ENDED_FILE).exists() for run in runs))


@pytest.mark.parametrize("end", ["finish", "give_up", "kill"])
def test_a_trimmed_run_keeps_its_newest_segment_and_its_loss_stays_exact(record, journal, end):
    old = earlier_run(journal, "old", end)
    before = segment_names(old.directory)
    assert len(before) > 4

    record(run_id="next", **TIGHT)
    wait_until(lambda: segment_names(old.directory) == before[-1:])

    read = batches(old.directory)
    stored, lost = stored_and_lost(read)
    assert added(stored, lost) == old.emitted
    assert lost[Kind.ALLOCATE] > stored.get(Kind.ALLOCATE, 0)
    assert read[0].gap.reason is GapReason.DELETED


def test_a_reader_in_the_middle_of_a_run_that_is_trimmed_counts_what_it_missed(record, journal):
    old = earlier_run(journal, "old", "kill")
    with StreamReader(old.directory) as reader:
        first = reader.read(40)
        record(run_id="next", **TIGHT)
        wait_until(lambda: len(segment_names(old.directory)) == 1)

        stored, lost = stored_and_lost([first, *read_all(reader)])
        resumed = batches(old.directory, first.position)

    assert added(stored, lost) == old.emitted
    assert added(stored_and_lost([first])[0], *stored_and_lost(resumed)) == old.emitted


def test_no_more_is_taken_than_the_bound_asks_for(record, journal):
    older = earlier_run(journal, "b-older", "finish")
    newer = earlier_run(journal, "a-newer", "finish")
    everything = segment_names(newer.directory)
    kept = bytes_on_disk(newer.directory) + 6 * SEGMENT_BYTES

    record(run_id="next", segment_bytes=SEGMENT_BYTES, max_bytes=kept)
    looked(older.directory, newer.directory)
    wait_until(lambda: len(segment_names(older.directory)) < 5)

    assert segment_names(newer.directory) == everything
    engine = journal / "engine-a"
    assert sum(bytes_on_disk(run) for run in engine.iterdir()) <= kept


def test_as_the_run_grows_the_earlier_ones_give_way(record, journal):
    old = earlier_run(journal, "old", "finish")
    room = bytes_on_disk(old.directory) + 4 * SEGMENT_BYTES
    recorder = record(run_id="next", segment_bytes=SEGMENT_BYTES, max_bytes=room)
    looked(old.directory)
    before = segment_names(old.directory)

    for step in range(3_000):
        recorder.allocate(step, [1, 2, 3])
        if step % 50 == 0:
            wait_until(lambda: recorder._reserver.ready is not None)
            recorder.heartbeat(step, 0, 0)

    wait_until(lambda: len(segment_names(old.directory)) < len(before))
    assert segment_names(old.directory)[-1] == before[-1]
    assert recorder.not_written() == {}


def test_a_living_sibling_of_another_process_is_never_touched(record, journal):
    sibling = earlier_run(journal, "sibling", "stay")
    dead = earlier_run(journal, "dead", "kill")
    before = sorted(path.name for path in sibling.directory.iterdir())
    try:
        record(run_id="next", **TIGHT)
        wait_until(lambda: len(segment_names(dead.directory)) == 1)

        assert sorted(path.name for path in sibling.directory.iterdir()) == before
        assert state_seen_from_outside(sibling.directory) == "alive"
    finally:
        sibling.process.kill()
        sibling.process.wait()
        sibling.process.stdout.close()
    assert added(*stored_and_lost(batches(sibling.directory))) == sibling.emitted


def test_a_sibling_in_the_same_process_keeps_its_lock_and_its_segments(record, journal):
    sibling = record(run_id="sibling", segment_bytes=SEGMENT_BYTES)
    dead = earlier_run(journal, "dead", "kill")

    record(run_id="next", **TIGHT)
    looked(dead.directory)

    assert state_seen_from_outside(sibling.directory) == "alive"
    assert not (sibling.directory / ENDED_FILE).exists()


def test_a_killed_run_gives_back_what_its_last_segment_had_reserved(record, journal):
    old = earlier_run(journal, "old", "kill", steps=5)
    before = bytes_on_disk(old.directory)

    record(run_id="next")
    wait_until(lambda: bytes_on_disk(old.directory) < before - 8 * 1024)

    stored, lost = stored_and_lost(batches(old.directory))
    assert stored == old.emitted
    assert lost == {}


def test_without_a_lock_file_nothing_is_taken(record, journal):
    unsure = earlier_run(journal, "unsure", "kill")
    dead = earlier_run(journal, "dead", "kill")
    (unsure.directory / "lock").unlink()
    before = segment_names(unsure.directory)

    record(run_id="next", **TIGHT)
    wait_until(lambda: len(segment_names(dead.directory)) == 1)

    assert segment_names(unsure.directory) == before


def test_the_newest_segment_with_a_good_header_stays_where_later_ones_are_damaged(record, journal):
    old = earlier_run(journal, "old", "finish")
    before = segment_names(old.directory)
    last = old.directory / before[-1]
    last.write_bytes(last.read_bytes()[:40] + b"\xff" + last.read_bytes()[41:])

    record(run_id="next", **TIGHT)
    wait_until(lambda: segment_names(old.directory) == before[-2:])

    assert added(*stored_and_lost(batches(old.directory))) == old.emitted


def test_links_and_foreign_files_stay_as_they_are(record, journal, tmp_path):
    outside = earlier_run(tmp_path / "elsewhere", "outside", "finish")
    dead = earlier_run(journal, "dead", "kill")
    engine = journal / "engine-a"
    (engine / "linked").symlink_to(outside.directory)
    (dead.directory / "00000000.seg").unlink()
    (dead.directory / "00000000.seg").symlink_to(outside.directory / "00000000.seg")
    (dead.directory / "00000001.seg").write_bytes(b"somebody's own bytes")
    (dead.directory / "notes.txt").write_text("mine")
    before = segment_names(outside.directory)

    record(run_id="next", **TIGHT)
    looked(dead.directory)
    mark_ended(dead.directory, hours_ago=1000)
    finished_runs(journal, 33)
    record(run_id="after", **TIGHT)
    looked(*engine.glob("short-*"))

    assert segment_names(outside.directory) == before
    assert (engine / "linked").is_symlink()
    assert (dead.directory / "00000000.seg").is_symlink()
    assert (dead.directory / "00000001.seg").read_bytes() == b"somebody's own bytes"
    assert (dead.directory / "notes.txt").read_text() == "mine"


def test_a_folder_that_others_may_change_is_left_alone(record, journal):
    open_to_all = earlier_run(journal, "open", "finish")
    dead = earlier_run(journal, "dead", "kill")
    open_to_all.directory.chmod(0o777)
    before = segment_names(open_to_all.directory)

    record(run_id="next", **TIGHT)
    wait_until(lambda: len(segment_names(dead.directory)) == 1)

    assert segment_names(open_to_all.directory) == before


def test_whole_runs_go_a_day_after_their_end_but_never_the_newest_32(record, journal):
    runs = finished_runs(journal, 36)
    for run in runs[:3]:
        mark_ended(run, hours_ago=25)
    mark_ended(runs[3], hours_ago=23)
    mark_ended(runs[-1], hours_ago=25)

    record(run_id="next")
    wait_until(lambda: not any(run.exists() for run in runs[:3]))

    looked(*runs[3:])
    assert all(segment_names(run) for run in runs[3:])


def test_last_segments_that_exceed_the_bound_by_themselves_stay_an_hour(record, journal):
    runs = finished_runs(journal, 35)
    mark_ended(runs[0], hours_ago=2)
    mark_ended(runs[1], hours_ago=0.9)
    mark_ended(runs[-1], hours_ago=2)

    record(run_id="next", **TIGHT)
    wait_until(lambda: not runs[0].exists())

    looked(*runs[1:])
    assert all(segment_names(run) for run in runs[1:])


def test_a_run_that_vanishes_under_the_look_disturbs_nobody(record, journal):
    old = earlier_run(journal, "old", "finish")
    recorder = record(run_id="next", segment_bytes=SEGMENT_BYTES, max_bytes=1 << 30)
    looked(old.directory)
    shutil.rmtree(old.directory)

    recorder._reserver._ended.bound(0)

    recorder.admit(1)
    assert stored_and_lost(batches(recorder.directory))[0][Kind.ADMIT] == 1
