"""Disk full, directory gone, permission lost: the engine lives, and what is missing is known."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kvpulse.events import Kind
from kvpulse.stream_values import GapReason, WriterState
from tests.kvpulse.factories_journal import (
    REPOSITORY,
    added,
    batches,
    child_environment,
    run_python,
    stored_and_lost,
)
from tests.waiting import wait_until

NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts and changes users")

# What a fresh process makes of the stream: stored and lost per kind code, and the reasons.
READ_IT = """
import json, sys
from pathlib import Path
from tests.kvpulse.factories_journal import batches, stored_and_lost
read = batches(Path(sys.argv[1]))
stored, lost = stored_and_lost(read)
print(json.dumps([stored, lost, [b.gap.reason for b in read if b.gap]]))
"""


def start_writer(
    journal: Path, seconds: float, segment_bytes: int = 65_536, pause: float = 0.001
) -> subprocess.Popen[str]:
    arguments = [str(journal), str(seconds), str(segment_bytes), str(pause)]
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.kvpulse.writer_process", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
        env=child_environment(),
    )
    assert process.stdout.readline() == "ready\n"
    return process


def ended(process: subprocess.Popen[str]) -> dict[str, dict[str, int]]:
    """Wait for the writer's own end, and return its tally."""
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    return json.loads(output.splitlines()[-1])


def read_in_a_fresh_process(stream: Path) -> tuple[dict[str, int], dict[str, int], list[str]]:
    done = run_python(READ_IT, stream, cwd=REPOSITORY)
    assert done.returncode == 0, done.stderr
    stored, lost, reasons = json.loads(done.stdout)
    return stored, lost, reasons


def sums(stored: dict[str, int], lost: dict[str, int], kinds: dict[str, int]) -> dict[str, int]:
    return {kind: stored.get(kind, 0) + lost.get(kind, 0) for kind in kinds}


@pytest.fixture
def small_file_system(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """Mount a real tmpfs of a given size."""
    mounted: list[Path] = []

    def mount(size: int) -> Path:
        path = tmp_path / "small"
        path.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"this machine does not let us mount a tmpfs: {done.stderr.strip()}")
        mounted.append(path)
        return path

    yield mount
    for path in mounted:
        subprocess.run(["umount", "-l", str(path)], check=True)


@NEEDS_ROOT
def test_a_file_system_smaller_than_a_segment_costs_events_but_not_the_engine(small_file_system):
    journal = small_file_system(48 * 1024)

    tally = ended(start_writer(journal, 0.5))

    stored, lost, reasons = read_in_a_fresh_process(journal / "engine-a" / "run")
    assert sums(stored, lost, tally["tally"]) == tally["tally"]
    assert lost == tally["not_written"]
    assert stored == {}
    assert reasons == ["not_written"]


@NEEDS_ROOT
def test_a_file_system_that_holds_few_segments_keeps_the_newest(small_file_system):
    journal = small_file_system(5 * 66_000)

    tally = ended(start_writer(journal, 1.0))

    stored, lost, _ = read_in_a_fresh_process(journal / "engine-a" / "run")
    assert sums(stored, lost, tally["tally"]) == tally["tally"]
    assert stored[str(int(Kind.STEP))] > 100
    assert lost[str(int(Kind.STEP))] > 100


@NEEDS_ROOT
@pytest.mark.slow
def test_a_file_system_that_others_fill_and_empty_again(small_file_system):
    journal = small_file_system(2**20)
    process = start_writer(journal, 2.5)
    stream = journal / "engine-a" / "run"
    hog = journal / "hog"

    with hog.open("wb", buffering=0) as file:
        while file.tell() < 2**20:
            try:
                file.write(bytes(4096))
            except OSError:
                break
    wait_until(lambda: status_of(stream).not_written > 0)
    hog.unlink()
    wait_until(lambda: not status_of(stream).paused)

    tally = ended(process)
    stored, lost, _ = read_in_a_fresh_process(stream)
    assert sums(stored, lost, tally["tally"]) == tally["tally"]
    assert sum(tally["not_written"].values()) > 0


@NEEDS_ROOT
def test_permission_lost_in_the_middle_pauses_and_counts(tmp_path):
    process = start_writer(tmp_path / "journal", 1.0)
    stream = tmp_path / "journal" / "engine-a" / "run"

    process.stdin.write("nobody\n")
    process.stdin.flush()
    tally = ended(process)

    stored, lost, _ = read_in_a_fresh_process(stream)
    assert sums(stored, lost, tally["tally"]) == tally["tally"]
    assert lost == tally["not_written"]
    assert lost[str(int(Kind.ALLOCATE))] > 0


def remove_under_its_writer(stream):
    """Remove a directory in which a writer may make a file at the same moment."""

    def is_gone():
        shutil.rmtree(stream, ignore_errors=True)
        return not (stream / first).exists()

    first = min(path.name for path in stream.glob("*.seg"))
    wait_until(is_gone)


@pytest.mark.slow
def test_a_removed_directory_is_made_again_and_the_totals_are_exact(tmp_path):
    process = start_writer(tmp_path / "journal", 2.0)
    stream = tmp_path / "journal" / "engine-a" / "run"

    wait_until(lambda: len(list(stream.glob("*.seg"))) > 2)
    remove_under_its_writer(stream)
    tally = ended(process)

    stored, lost, _ = read_in_a_fresh_process(stream)
    assert sums(stored, lost, tally["tally"]) == tally["tally"]
    assert stored[str(int(Kind.STEP))] > 0
    assert lost[str(int(Kind.STEP))] > 0


def test_a_directory_removed_just_before_the_end_leaves_the_totals_too(tmp_path):
    process = start_writer(tmp_path / "journal", 0.6, segment_bytes=16 * 2**20)
    stream = tmp_path / "journal" / "engine-a" / "run"

    remove_under_its_writer(stream)
    tally = ended(process)

    stored, lost, _ = read_in_a_fresh_process(stream)
    assert sums(stored, lost, tally["tally"]) == tally["tally"]


def test_a_journal_that_cannot_be_made_is_no_reason_to_stop(tmp_path):
    (tmp_path / "journal").write_text("a file where the directory should be")

    tally = ended(start_writer(tmp_path / "journal", 0.3))

    assert tally["not_written"] == tally["emitted"]
    assert tally["not_written"] == tally["tally"]


def test_recording_resumes_with_a_keyframe_when_the_journal_can_be_made(record, tmp_path):
    (tmp_path / "journal").write_text("in the way")
    recorder = record()
    recorder.step(1, 1, 1, 1, 1, 0, 1, 1, 1)
    recorder.allocate(1, [1, 2])
    assert "journal" in recorder.failure

    (tmp_path / "journal").unlink()
    wait_until(lambda: recorder._reserver.ready is not None)
    recorder.admit(1)
    recorder.set_snapshot(lambda: None)
    recorder.step(2, 1, 1, 1, 1, 0, 1, 1, 1)
    recorder.step(3, 1, 1, 1, 1, 0, 1, 1, 1)
    assert recorder.failure == ""
    recorder.close()

    read = batches(recorder.directory)
    stored, lost = stored_and_lost(read)
    assert added(stored, lost) == recorder.emitted()
    assert lost == {Kind.STEP: 2, Kind.ALLOCATE: 2, Kind.ADMIT: 1}
    assert read[0].gap.reason is GapReason.NOT_WRITTEN
    assert (read[0].gap.first_seq, read[0].gap.end_seq) == (0, 4)
    assert read[0].records["seq"][0] == 4


def test_the_loss_of_a_paused_writer_shows_while_it_lasts(record):
    recorder = record()
    recorder._reserver.attempt = lambda: False
    recorder._reserver.take()
    while not recorder.not_written():
        recorder.admit(1)

    with recorder.reader() as reader:
        status = reader.status()
    assert status.writer is WriterState.ALIVE
    assert status.paused
    assert status.not_written == recorder.not_written()[Kind.ADMIT]
    assert status.newest_seq == sum(recorder.emitted().values())


def status_of(stream: Path):
    from kvpulse.reader import StreamReader

    with StreamReader(stream) as reader:
        return reader.status()
