"""Damage, foreign files and links in a journal: what is said, and that all goes on.

Each case states the message, the exit code, and that the next valid event is stored.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent.reads.reads import open_reads
from kvpulse.recorder import Recorder
from kvpulse.segment_view import segment_path
from tests.agent.factories_hostile_journal import Stored, emitted, follow, stored_of
from tests.agent.factories_store import empty_store
from tests.kvpulse.factories_earlier_runs import SEGMENT_BYTES
from tests.kvpulse.test_rotation import fill_one_segment

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[Recorder]:
    """A writer in its third segment, so that the first two change no more."""
    journal = tmp_path / "journal"
    options = {"total_blocks": 64, "block_size": 4, "run_id": "r", "segment_bytes": SEGMENT_BYTES}
    recorder = Recorder.open(journal, "good", **options)
    for _ in range(2):
        fill_one_segment(recorder)
    recorder.heartbeat(1, 0, 0)
    yield recorder
    recorder.close()


@pytest.fixture
def store(tmp_path: Path) -> str:
    return empty_store(tmp_path)


def check_that_the_next_event_is_stored(recorder: Recorder, journal: Path, store: str) -> None:
    """Record one more, and look that nothing is missing in the sum."""
    before = stored_of(store)
    recorder.arrive(9_999, 8, 4)

    follow(journal, store)

    after = stored_of(store)
    assert after.stored > before.stored
    assert after.stored + after.lost == emitted(recorder)


def as_link(path: Path) -> None:
    path.unlink()
    path.symlink_to("/etc/passwd")


def as_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def as_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def with_a_damaged_header(path: Path) -> None:
    page = bytearray(path.read_bytes())
    page[16:64] = b"\xff" * 48
    path.write_bytes(page)


def as_another_segment(path: Path) -> None:
    shutil.copyfile(path.with_name(path.name.replace("1", "0")), path)


def cut_short(path: Path) -> None:
    os.truncate(path, 20_000)


NOT_OURS = "is no kvpulse journal: it starts with"
DAMAGES: list[tuple[Callable[[Path], object], str]] = [
    (as_link, "passing over a segment: {path} is a link"),
    (as_pipe, "passing over a segment: {path} is no regular file"),
    (as_folder, "passing over a segment: {path} is no regular file"),
    (lambda path: path.write_bytes(b""), f"passing over a segment: {{path}} {NOT_OURS} b''"),
    (lambda path: path.write_bytes(b"\x7fELF" * 9_999), f"{{path}} {NOT_OURS} b'\\x7fELF\\x7fELF'"),
    (with_a_damaged_header, "passing over a segment: {path} has a damaged header"),
    (as_another_segment, "passing over a segment: {path} has a damaged header"),
    (cut_short, "passing over a segment: {path} has a damaged header"),
]


@pytest.mark.parametrize(("damage", "message"), DAMAGES)
def test_a_bad_segment_is_named_counted_as_lost_and_passed_over(
    recorder: Recorder,
    tmp_path: Path,
    store: str,
    caplog: pytest.LogCaptureFixture,
    damage: Callable[[Path], object],
    message: str,
) -> None:
    path = segment_path(recorder.directory, 1)
    damage(path)

    code = follow(tmp_path / "journal", store)

    assert code == 0
    assert "good/r: " + message.format(path=path) in caplog.text or message.startswith("{path}")
    assert message.format(path=path) in caplog.text
    assert "events lost (damaged), stored as a gap" in caplog.text
    assert stored_of(store).gaps == ["damaged"]
    check_that_the_next_event_is_stored(recorder, tmp_path / "journal", store)


def test_a_loss_that_nothing_followed_yet_is_told_by_the_next_agent(
    recorder: Recorder, tmp_path: Path, store: str
) -> None:
    fill_one_segment(recorder)  # the last one holds no record yet
    segment_path(recorder.directory, 2).unlink()

    for _ in range(3):
        assert follow(tmp_path / "journal", store) == 0
    check_that_the_next_event_is_stored(recorder, tmp_path / "journal", store)

    assert stored_of(store).lost > 100
    assert len(stored_of(store).gaps) == 1


def test_a_missing_segment_is_a_gap_of_its_own_kind(
    recorder: Recorder, tmp_path: Path, store: str, caplog: pytest.LogCaptureFixture
) -> None:
    segment_path(recorder.directory, 1).unlink()

    assert follow(tmp_path / "journal", store) == 0

    assert "events lost (deleted), stored as a gap" in caplog.text
    check_that_the_next_event_is_stored(recorder, tmp_path / "journal", store)


def test_a_segment_of_another_version_stops_its_stream_and_no_other(
    recorder: Recorder, tmp_path: Path, store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "journal" / "newer" / "r" / segment_path(Path(), 0).name
    path.parent.mkdir(parents=True)
    page = bytearray(segment_path(recorder.directory, 0).read_bytes())
    page[8] = 99
    path.write_bytes(page)

    assert follow(tmp_path / "journal", store) == 3

    told = f"{path} has journal format 99, this reader knows 1; install the same kvpulse version"
    assert told in capsys.readouterr().err
    check_that_the_next_event_is_stored(recorder, tmp_path / "journal", store)


def test_a_stream_that_is_none_is_said_and_no_other_is_held_up(
    recorder: Recorder, tmp_path: Path, store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "journal" / "foreign" / "r" / segment_path(Path(), 0).name
    path.parent.mkdir(parents=True)
    path.write_bytes(b"#!/bin/sh\n")

    assert follow(tmp_path / "journal", store) == 3

    assert f"{path} is no kvpulse journal" in capsys.readouterr().err
    check_that_the_next_event_is_stored(recorder, tmp_path / "journal", store)


def test_foreign_files_beside_the_segments_are_not_touched(
    recorder: Recorder, tmp_path: Path, store: str, caplog: pytest.LogCaptureFixture
) -> None:
    names = ("core", "notes.txt", "0.seg", "00000001.seg.bak", "x0000001.seg", "\x1b[2J")
    planted = [recorder.directory / name for name in names]
    for file in planted:
        file.write_bytes(b"\xff" * 100)
    link = recorder.directory / "elsewhere"
    link.symlink_to("/")

    assert follow(tmp_path / "journal", store) == 0

    assert [r for r in caplog.records if r.levelname != "INFO"] == []
    # These alone: the recorder's helper reserves segments beside them whenever it likes.
    assert [file.read_bytes() for file in planted] == [b"\xff" * 100] * len(planted)
    assert link.readlink() == Path("/")
    assert stored_of(store) == Stored(emitted(recorder), 0, [])
    check_that_the_next_event_is_stored(recorder, tmp_path / "journal", store)


@pytest.mark.parametrize("target", ["/", "/etc/passwd", "/nowhere"])
def test_links_out_of_the_folder_are_passed_over(
    recorder: Recorder, tmp_path: Path, store: str, caplog: pytest.LogCaptureFixture, target: str
) -> None:
    links = [tmp_path / "journal" / "elsewhere", recorder.directory.parent / "elsewhere"]
    for link in links:
        link.symlink_to(target)

    assert follow(tmp_path / "journal", store) == 0

    for link in links:
        assert f"passing over {link}: it is a link, and links are not followed" in caplog.text
    check_that_the_next_event_is_stored(recorder, tmp_path / "journal", store)


@needs_root
def test_the_stream_of_a_wrong_owner_is_passed_over(
    recorder: Recorder, tmp_path: Path, store: str, caplog: pytest.LogCaptureFixture
) -> None:
    foreign = Recorder.open(tmp_path / "journal", "foreign", total_blocks=4, block_size=4)
    foreign.close()
    os.chown(foreign.directory, 4_321, 4_321)

    assert follow(tmp_path / "journal", store) == 0

    assert f"passing over {foreign.directory}: it belongs to user 4321" in caplog.text
    reads = open_reads(store)
    assert [row.engine for row in reads.engines()] == ["good"]
    reads.close()
    check_that_the_next_event_is_stored(recorder, tmp_path / "journal", store)
