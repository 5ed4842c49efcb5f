"""Slow readers, a full disk: writing goes on, or says plainly why not, and nothing is lost."""

import os
import sqlite3
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from agent.agent_loop import AgentLoop
from agent.config import AgentConfig
from agent.live_view import LiveView
from agent.reads.reads import open_reads
from agent.store.connection import open_for_writing, parse_address
from agent.store.keeper import WAIT_SECONDS, StoreKeeper
from agent.store.space import checkpoint, wal_bytes
from agent.store.store import Store
from tests.agent.factories_store import (
    SHAPE,
    STREAM,
    chunk,
    delta,
    empty_store,
    progress,
    request,
    rollup,
)
from tests.agent.simulated_writer import record
from tests.waiting import wait_until

ROWS_PER_COMMIT = 50
COMMITS_PER_SECOND = 4


class Reader(threading.Thread):
    """Reads the store for two seconds at a time, in one transaction each, without a pause."""

    def __init__(self, where: str, stop: threading.Event) -> None:
        super().__init__()
        self.where, self.stop, self.errors, self.num_reads = where, stop, [], 0

    def run(self) -> None:
        connection = sqlite3.connect(f"file:{self.where}?mode=ro", uri=True, isolation_level=None)
        while not self.stop.is_set():
            try:
                connection.execute("BEGIN")
                first = connection.execute("SELECT COUNT(*) FROM requests").fetchone()
                self.stop.wait(2.0)
                assert connection.execute("SELECT COUNT(*) FROM requests").fetchone() == first
                connection.execute("COMMIT")
                self.num_reads += 1
            except (sqlite3.Error, AssertionError) as error:
                self.errors.append(error)
        connection.close()


@pytest.mark.slow
def test_200_rows_a_second_beside_four_readers_of_two_seconds(tmp_path: Path) -> None:
    where, seconds = empty_store(tmp_path), 30
    stop = threading.Event()
    readers = [Reader(where, stop) for _ in range(4)]
    keeper = StoreKeeper(parse_address(where), LiveView(0), budget_bytes=1 << 30, prune_seconds=1)
    delays, seq, largest = [], 0, 0
    with Store.open(where) as store:
        writer = store.writer(STREAM)
        for number, reader in enumerate(readers):
            reader.start()
            time.sleep(0.5 * (number > 0))
        keeper.start()
        began = time.monotonic()
        for number in range(seconds * COMMITS_PER_SECOND):
            due = began + number / COMMITS_PER_SECOND
            time.sleep(max(0.0, due - time.monotonic()))
            rows = tuple(request(seq + n + 1) for n in range(ROWS_PER_COMMIT))
            seq += ROWS_PER_COMMIT
            news = delta(seq, requests=rows, rollups=(rollup(1, number, steps=number),))
            start = time.monotonic()
            writer.commit(news, SHAPE, progress(seq))
            delays.append(time.monotonic() - min(start, due))
            largest = max(largest, wal_bytes(Path(where)))
    stop.set()
    keeper.stop()
    for reader in readers:
        reader.join()

    assert not [error for reader in readers for error in reader.errors]
    assert min(reader.num_reads for reader in readers) >= seconds // 3
    with sqlite3.connect(where) as connection:
        assert connection.execute("SELECT COUNT(*) FROM requests").fetchone() == (6_000,)
    connection.close()
    assert np.quantile(delays, 0.99) < 1.0
    assert largest < 64 << 20


def test_a_log_that_readers_keep_from_being_emptied_is_emptied_all_the_same(
    tmp_path: Path,
) -> None:
    where = empty_store(tmp_path)
    stop = threading.Event()
    readers = [Reader(where, stop) for _ in range(3)]
    address = parse_address(where)
    with Store.open(where) as store:
        writer = store.writer(STREAM)
        for reader in readers:
            reader.start()
            time.sleep(0.3)
        for seq in range(1, 9):
            blob = os.urandom(1 << 20)
            writer.commit(delta(seq, chunks=(chunk(seq - 1, 1, blob),)), SHAPE, progress(seq))
        before = wal_bytes(Path(where))
        engine = open_for_writing(address)
        at_once = checkpoint(engine, wait_seconds=0.0)
        waited = checkpoint(engine, wait_seconds=WAIT_SECONDS)
        engine.dispose()
    stop.set()
    for reader in readers:
        reader.join()

    assert before > 8 << 20
    assert not at_once
    assert waited
    assert not [error for reader in readers for error in reader.errors]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own with a few megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=3m,mode=700", "none", str(folder)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"cannot mount a small tmpfs here: {error}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True, capture_output=True)


@pytest.mark.mount
def test_a_full_file_system_is_said_plainly_and_nothing_is_lost(
    tmp_path: Path, small_disk: Path
) -> None:
    where = empty_store(small_disk)
    account = record(tmp_path / "journal", num_requests=60)
    ballast = small_disk / "ballast"
    view = LiveView(0)
    with Store.open(where) as store:
        config = AgentConfig(journal=tmp_path / "journal", store=where, commit_events=1024)
        loop = AgentLoop(config, store, view)
        loop.turn(scan=True)
        fill(ballast)
        for _ in range(50):
            loop.turn()
            if loop.store_error is not None:
                break
        assert loop.store_error is not None
        assert "full" in loop.store_error
        assert "free" in loop.store_error
        assert not view.snapshot().store_writable
        for _ in range(5):
            loop.turn()

        ballast.unlink()
        wait_until(lambda: tries_again_and_works(loop), timeout=30)
        while loop.turn(scan=True):
            pass
        loop.turn(scan=True)

        assert loop.store_error is None
        assert view.snapshot().store_writable
    reads = open_reads(where)
    (engine,) = reads.engines()
    reads.close()
    assert engine.events_stored == account["events_emitted"]
    assert engine.events_lost == 0
    assert engine.audits_failed == 0


def tries_again_and_works(loop: AgentLoop) -> bool:
    loop.turn(scan=True)
    return loop.store_error is None


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        size = 1 << 16
        while size:
            try:
                file.write(bytes(size))
            except OSError:
                size //= 2
