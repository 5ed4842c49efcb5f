"""Alive, finished or dead: a reader knows within moments, and a fork confuses nobody."""

import os
import signal
import subprocess
import sys
import time

import pytest

from kvpulse.events import Kind
from kvpulse.lifetime_lock import is_locked
from kvpulse.reader import StreamReader, list_streams
from kvpulse.stream_values import WriterState
from tests.kvpulse.factories_journal import (
    batches,
    child_environment,
    run_python,
    stored_and_lost,
)
from tests.waiting import wait_until

STATUS = """
import sys
from pathlib import Path
from kvpulse.reader import StreamReader
print(StreamReader(Path(sys.argv[1])).status().writer)
"""

# A writer that forks; the child goes on, tries to write, and says so.
FORKS = """
import os, sys, time
from pathlib import Path
from kvpulse.recorder import Recorder
recorder = Recorder.open(Path(sys.argv[1]), "engine-a", total_blocks=8, block_size=16, run_id="r")
recorder.admit(1)
if os.fork() == 0:
    for number in range(100):
        recorder.admit(2)
        recorder.allocate(2, [1, 2, 3])
    recorder.step(1, 1, 1, 1, 1, 0, 1, 1, 1)
    recorder.close()
    print(f"child {os.getpid()}", flush=True)
    time.sleep(60)
    os._exit(0)
recorder.admit(3)
time.sleep(60)
"""

# The child leaves through the interpreter's front door, which runs its exit handlers.
FORKS_AND_LEAVES = """
import os, sys
from pathlib import Path
from kvpulse.recorder import Recorder
recorder = Recorder.open(Path(sys.argv[1]), "engine-a", total_blocks=8, block_size=16, run_id="r")
child = os.fork()
if child == 0:
    recorder.admit(9)
    sys.exit(0)
os.waitpid(child, 0)
recorder.admit(1)
reserved = list(recorder.directory.glob("*.tmp"))
recorder.close()
print(len(reserved), recorder.emitted())
"""


def state_seen_from_outside(directory) -> str:
    done = run_python(STATUS, directory)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_writer_is_alive_until_it_finishes(record):
    recorder = record()
    assert state_seen_from_outside(recorder.directory) == "alive"

    recorder.close()

    assert state_seen_from_outside(recorder.directory) == "finished"


def test_a_writer_that_gave_up_is_dead(record):
    recorder = record()
    recorder.close(finished=False)

    assert state_seen_from_outside(recorder.directory) == "dead"


def test_a_reader_in_the_writers_process_is_told_and_does_not_drop_the_lock(record):
    recorder = record()

    with recorder.reader() as told, StreamReader(recorder.directory) as unaware:
        assert told.status().writer is WriterState.ALIVE
        assert unaware.status().writer is WriterState.ALIVE
        assert list(iter(unaware.read, None))
        assert state_seen_from_outside(recorder.directory) == "alive"
        recorder.close(finished=False)
        assert told.status().writer is WriterState.DEAD
        assert unaware.status().writer is WriterState.DEAD


def test_a_killed_writer_is_dead_though_its_forked_child_lives_on(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", FORKS, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        env=child_environment(),
    )
    child = int(process.stdout.readline().split()[1])
    stream = tmp_path / "engine-a" / "r"
    try:
        with StreamReader(stream) as reader:
            wait_until(lambda: reader.status().newest_seq == 3)
            assert reader.status().writer is WriterState.ALIVE
            process.kill()
            process.wait()
            killed = time.monotonic()
            wait_until(lambda: reader.status().writer is WriterState.DEAD, timeout=2)
            os.kill(child, 0)
        assert time.monotonic() - killed < 2
    finally:
        os.kill(child, signal.SIGKILL)
        process.stdout.close()
    stored, lost = stored_and_lost(batches(stream))
    assert stored == {Kind.KEYFRAME: 1, Kind.ADMIT: 2}
    assert lost == {}


def test_a_forked_child_that_exits_takes_nothing_away_from_its_parent(tmp_path):
    done = run_python(FORKS_AND_LEAVES, tmp_path)

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("1 ")
    stored, _ = stored_and_lost(batches(tmp_path / "engine-a" / "r"))
    assert stored == {Kind.KEYFRAME: 1, Kind.ADMIT: 1}


def test_a_process_that_ends_without_closing_leaves_a_dead_stream(tmp_path):
    code = FORKS.partition("if os.fork")[0]

    done = run_python(code, tmp_path)

    assert done.returncode == 0, done.stderr
    stream = tmp_path / "engine-a" / "r"
    assert list(stream.glob("*.tmp")) == []
    assert state_seen_from_outside(stream) == "dead"
    assert stored_and_lost(batches(stream))[0] == {Kind.KEYFRAME: 1, Kind.ADMIT: 1}


def test_the_next_run_frees_what_a_killed_one_had_reserved(record, tmp_path):
    code = FORKS.partition("if os.fork")[0] + "print('x', flush=True); time.sleep(60)"
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code.replace('"r"', f'"{run}"'), str(tmp_path / "journal")],
            stdout=subprocess.PIPE,
            env=child_environment(),
        )
        for run in ("killed", "living")
    ]
    killed, living = processes
    folder = tmp_path / "journal" / "engine-a"
    sibling = record(run_id="sibling")
    for process, run in ((killed, "killed"), (living, "living")):
        assert process.stdout.readline() == b"x\n"
        wait_until(lambda run=run: list((folder / run).glob("*.tmp")))
    killed.kill()
    killed.wait()

    record(run_id="next")

    wait_until(lambda: not list((folder / "killed").glob("*.tmp")))
    assert list((folder / "living").glob("*.tmp"))
    assert list(sibling.directory.glob("*.tmp"))
    assert state_seen_from_outside(sibling.directory) == "alive"
    assert stored_and_lost(batches(folder / "killed"))[0][Kind.ADMIT] == 1
    for process in processes:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_stream_without_a_lock_file_is_dead(tmp_path):
    assert not is_locked(tmp_path)


def test_streams_are_listed_by_engine_and_run(record, tmp_path):
    first = record(run_id="b")
    second = record(run_id="a")
    (tmp_path / "journal" / "engine-a" / "notes").mkdir()
    (tmp_path / "journal" / "link").symlink_to(tmp_path / "journal" / "engine-a")

    assert list_streams(tmp_path / "journal") == [second.directory, first.directory]
    assert list_streams(tmp_path / "nowhere") == []


def test_a_recorder_that_is_dropped_lets_everything_go(record, tmp_path):
    import gc

    from tests.kvpulse.factories_journal import open_recorder

    recorder = open_recorder(tmp_path / "journal", run_id="dropped")
    directory = recorder.directory
    del recorder
    gc.collect()

    assert list(directory.glob("*.tmp")) == []
    assert state_seen_from_outside(directory) == "dead"


@pytest.mark.parametrize("finished", [True, False])
def test_closing_leaves_no_reserved_file(record, finished):
    recorder = record()
    wait_until(lambda: list(recorder.directory.glob("*.tmp")))

    recorder.close(finished=finished)

    assert sorted(path.name for path in recorder.directory.iterdir()) == [
        "00000000.seg",
        "lock",
        "loss",
    ]
