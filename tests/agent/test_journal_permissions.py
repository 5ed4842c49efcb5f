"""Permissions in a journal: what may not be read is said, and read once it may be."""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent.agent_loop import FAULT_PAUSE_SECONDS, AgentLoop
from agent.config import AgentConfig
from agent.live_view import LiveView
from agent.store.store import Store
from agent.stream_follower import Clocks
from kvpulse.recorder import Recorder
from kvpulse.segment_view import segment_path
from tests.agent.factories_hostile_journal import Stored, emitted, follow, stored_of
from tests.agent.factories_store import empty_store

NOBODY = 65_534


@contextmanager
def unprivileged() -> Iterator[None]:
    """Do without root's right to read everything."""
    was = os.geteuid()
    if was == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(was)


@pytest.fixture(scope="module")
def everything_imported(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Import what an agent needs while we may still read it."""
    folder = tmp_path_factory.mktemp("first")
    follow(folder / "journal", empty_store(folder))


@pytest.fixture
def open_folder(everything_imported: None) -> Iterator[Path]:
    """A folder that an unprivileged user reaches, too; pytest's own is root's alone."""
    with tempfile.TemporaryDirectory() as folder, unprivileged():
        path = Path(folder) / "mine"
        with as_before():
            path.mkdir(mode=0o777)
            path.parent.chmod(0o755)
            path.chmod(0o777)
        yield path
        with as_before():
            for each in [path, *path.rglob("*")]:
                each.chmod(0o700)


@contextmanager
def as_before() -> Iterator[None]:
    """Be root again for a moment, where we were."""
    now = os.geteuid()
    os.seteuid(os.getuid())
    try:
        yield
    finally:
        os.seteuid(now)


def test_a_segment_that_may_not_be_read_is_said_and_read_once_it_may(
    open_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journal, store = open_folder / "journal", empty_store(open_folder)
    recorder = Recorder.open(journal, "good", total_blocks=64, block_size=4, run_id="r")
    path = segment_path(recorder.directory, 0)
    path.chmod(0)

    assert follow(journal, store) == 3
    told = capsys.readouterr().err
    path.chmod(0o600)
    recorder.arrive(1, 8, 4)
    assert follow(journal, store) == 0

    assert f"kvpulse agent: cannot read {path}: Permission denied; segments belong to" in told
    assert stored_of(store) == Stored(emitted(recorder), 0, [])
    recorder.close()


def test_a_running_agent_looks_again_after_a_minute(
    open_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    journal, store, now = open_folder / "journal", empty_store(open_folder), [100.0]
    recorder = Recorder.open(journal, "good", total_blocks=64, block_size=4, run_id="r")
    path = segment_path(recorder.directory, 0)
    path.chmod(0)
    view = LiveView(0)
    with Store.open(store) as opened:
        config = AgentConfig(journal=journal, store=store)
        loop = AgentLoop(config, opened, view, clocks=Clocks(seconds=lambda: now[0]))
        for _ in range(4):
            loop.turn()
            now[0] += FAULT_PAUSE_SECONDS + 1
        told = [error.subject for error in view.snapshot().errors]
        path.chmod(0o600)
        loop.turn()
        loop.close()

    assert told == ["good/r"]
    assert view.snapshot().errors == ()
    assert caplog.text.count("no longer following good/r: cannot read") == 1
    assert stored_of(store).stored > 0
    recorder.close()


@pytest.mark.parametrize("level", ["good", "r"])
def test_a_folder_within_that_may_not_be_listed_is_said(
    open_folder: Path,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
    level: str,
) -> None:
    journal, store = open_folder / "journal", empty_store(open_folder)
    recorder = Recorder.open(journal, "good", total_blocks=64, block_size=4, run_id="r")
    other = Recorder.open(journal, "other", total_blocks=64, block_size=4, run_id="r")
    closed = recorder.directory if level == "r" else recorder.directory.parent
    closed.chmod(0)

    code = follow(journal, store)
    told = caplog.text + capsys.readouterr().err
    closed.chmod(0o700)
    other.arrive(1, 8, 4)
    assert follow(journal, store) == 0

    assert code == (3 if level == "r" else 0)
    assert f"{closed}: Permission denied" in told or f"{closed}: cannot be listed" in told
    assert stored_of(store).stored == emitted(recorder)
    assert stored_of(store, "other").stored == emitted(other)
    recorder.close()
    other.close()


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda path: path.write_text("no folder"), "cannot be listed: Not a directory"),
        (lambda path: path.mkdir(mode=0), "cannot be listed: Permission denied"),
        (lambda path: path.symlink_to(path), "cannot be read: Too many levels of symbolic links"),
    ],
)
def test_a_journal_folder_that_cannot_be_read_ends_with_3_until_it_can(
    open_folder: Path,
    capsys: pytest.CaptureFixture[str],
    spoil: Callable[[Path], object],
    told: str,
) -> None:
    journal, store = open_folder / "journal", empty_store(open_folder)
    spoil(journal)

    assert follow(journal, store) == 3
    assert f"kvpulse agent: the journal folder {journal} {told}" in capsys.readouterr().err

    journal.rmdir() if journal.is_dir() else journal.unlink()
    recorder = Recorder.open(journal, "good", total_blocks=64, block_size=4, run_id="r")
    assert follow(journal, store) == 0
    assert stored_of(store).stored == emitted(recorder)
    recorder.close()
