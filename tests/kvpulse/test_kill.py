"""`kill -9` at any moment: what was committed is there, whole, and nothing else is."""

import mmap
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

from kvpulse.errors import KeyframeDamagedError
from kvpulse.events import Kind
from kvpulse.keyframe_decoder import decode_keyframe
from kvpulse.reader import StreamReader
from kvpulse.stream_values import WriterState, expand_words
from tests.kvpulse.factories_journal import REPOSITORY, batches, child_environment
from tests.kvpulse.killed_writer import (
    KEYFRAME,
    LANE,
    PAGE_BYTES,
    PHASES,
    ROTATION,
    RUNNING,
    counts_after,
    ids_of,
)

STEERED = 12  # runs in which the killer waits for each phase
UNSTEERED = 20


class Killed(NamedTuple):
    folder: Path
    phase: str
    returned: int


def kill_one(folder: Path, *, phase: int, seed: int, mutant: bool = False) -> Killed:
    """Run a writer and kill it; return the phase in which it died and the calls that returned."""
    chance = random.Random(seed)
    folder.mkdir()
    page = folder / "page"
    page.write_bytes(bytes(PAGE_BYTES))
    with page.open("r+b") as file:
        shared = mmap.mmap(file.fileno(), PAGE_BYTES)
    arguments = [folder / "journal", page, phase, seed, "mutant" if mutant else "sound"]
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.kvpulse.killed_writer", *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
        env=child_environment(),
    )
    with process:
        assert process.stdout.readline() == "ready\n"
        time.sleep(chance.uniform(0, 0.06))
        deadline = time.monotonic() + 5
        while phase != RUNNING and shared[0] != phase and time.monotonic() < deadline:
            pass
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    killed = Killed(folder, PHASES[shared[0]], int.from_bytes(shared[8:16], "little"))
    shared.close()
    return killed


def check_stream(killed: Killed) -> None:
    """Every call that returned is there, in order and whole; at most one more is."""
    stream = killed.folder / "journal" / "engine-a" / "r"
    read = batches(stream)
    number = 0
    for batch in read:
        assert batch.gap is None
        for index, record in enumerate(batch.records):
            words = expand_words(batch, index)
            if record["kind"] == Kind.ALLOCATE:
                number += 1
                assert (int(record["owner"]), words.tolist()) == (number, ids_of(number))
            elif record["kind"] == Kind.KEYFRAME:
                keyframe, _ = decode_keyframe(words)
                assert keyframe.step <= number + 1
                if keyframe.step:
                    assert keyframe.counts == counts_after(keyframe.step)
    assert killed.returned <= number <= killed.returned + 1
    with StreamReader(stream) as reader:
        assert reader.status().writer is WriterState.DEAD


def test_a_writer_killed_in_a_lane_write_leaves_whole_records(tmp_path):
    killed = kill_one(tmp_path / "run", phase=LANE, seed=1)

    assert killed.phase == "lane"
    check_stream(killed)


def test_a_writer_that_commits_first_is_caught_by_the_same_check(tmp_path):
    caught = 0
    for seed in range(4):
        killed = kill_one(tmp_path / str(seed), phase=LANE, seed=seed, mutant=True)
        try:
            check_stream(killed)
        except (AssertionError, KeyframeDamagedError):
            caught += 1

    assert caught >= 2


@pytest.mark.slow
def test_no_committed_record_is_lost_or_torn_wherever_the_writer_is_killed(tmp_path, capsys):
    seed = random.SystemRandom().randrange(2**32)
    plan = [*[ROTATION, KEYFRAME, LANE] * STEERED, *[RUNNING] * UNSTEERED]

    died: Counter[str] = Counter()
    for run, phase in enumerate(plan):
        killed = kill_one(tmp_path / str(run), phase=phase, seed=seed + run)
        died[killed.phase] += 1
        check_stream(killed)

    with capsys.disabled():
        print(f"\nkilled {len(plan)} writers (seed {seed}): {dict(died)}")
    assert len(plan) >= 50
    assert min(died[name] for name in ("rotation", "keyframe", "lane")) >= 3
