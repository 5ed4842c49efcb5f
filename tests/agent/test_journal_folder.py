"""Streams are found by folder; nothing in a shared journal folder is followed on trust."""

import logging
import os
from pathlib import Path

import pytest

from agent.sources.journal import JournalFolder
from agent.store.stream_id import StreamId


def add_stream(journal: Path, engine: str, run: str) -> Path:
    folder = journal / engine / run
    folder.mkdir(parents=True, mode=0o700)
    return folder


def test_streams_are_found_by_engine_and_run(tmp_path: Path) -> None:
    add_stream(tmp_path, "b", "1")
    add_stream(tmp_path, "a", "2")
    add_stream(tmp_path, "a", "1")

    found = JournalFolder(tmp_path).streams()

    assert [item.stream for item in found] == [
        StreamId("a", "1"),
        StreamId("a", "2"),
        StreamId("b", "1"),
    ]
    assert found[0].directory == tmp_path / "a" / "1"


def test_a_folder_that_appears_later_is_found_then(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    journal = JournalFolder(tmp_path / "later")
    with caplog.at_level(logging.WARNING):
        assert journal.streams() == []
    assert "does not exist yet" in caplog.text

    add_stream(tmp_path / "later", "a", "1")

    assert len(journal.streams()) == 1


def test_links_files_and_odd_names_are_passed_over_and_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    outside = add_stream(tmp_path / "outside", "a", "1")
    journal = tmp_path / "journal"
    add_stream(journal, "good", "1")
    (journal / "linked").symlink_to(outside.parent)
    (journal / "good" / "run-linked").symlink_to(outside)
    (journal / "file").write_text("x")
    (journal / "bell\x07").mkdir()
    (journal / ".hidden").mkdir()
    folder = JournalFolder(journal)

    with caplog.at_level(logging.WARNING):
        found = [folder.streams() for _ in range(3)]

    assert [[item.stream for item in look] for look in found] == [[StreamId("good", "1")]] * 3
    lines = [record.getMessage() for record in caplog.records]
    assert sorted(line.rpartition(": ")[2] for line in lines) == [
        "it is a link, and links are not followed",
        "it is a link, and links are not followed",
        "it is not a folder",
        "no engine writes such a name",
    ]
    assert all(line.isprintable() for line in lines)


def test_another_users_folder_is_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    add_stream(tmp_path, "a", "1")
    stranger = os.geteuid() + 1

    with caplog.at_level(logging.WARNING):
        assert JournalFolder(tmp_path, uid=stranger).streams() == []

    assert f"belongs to user {os.geteuid()}" in caplog.text


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a folder away")
def test_root_reads_for_the_owner_of_the_folder_and_nobody_else(tmp_path: Path) -> None:
    os.chown(tmp_path, 1234, 1234)
    for name, uid in (("theirs", 1234), ("foreign", 4321)):
        stream = add_stream(tmp_path, name, "1")
        os.chown(stream, uid, uid)
        os.chown(stream.parent, uid, uid)

    found = JournalFolder(tmp_path, uid=0).streams()

    assert [item.stream.engine for item in found] == ["theirs"]
