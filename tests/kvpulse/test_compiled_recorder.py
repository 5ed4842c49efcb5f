"""What only the C side can get wrong: memory, threads, odd clocks, hostile arguments, kill -9."""

import contextlib
import gc
import mmap
import os
import signal
import subprocess
import sys
import threading
import time
import weakref

import numpy as np
import pytest

from kvpulse.emitter_choice import is_built, populate
from kvpulse.events import Kind
from kvpulse.segment import reserve_segment, segment_shape
from tests.kvpulse.factories_journal import (
    TickingClock,
    added,
    batches,
    child_environment,
    open_recorder,
    run_python,
    stored_and_lost,
)
from tests.kvpulse.test_rotation import fill_one_segment
from tests.waiting import wait_until

pytestmark = pytest.mark.skipif(
    not is_built(), reason="the C emitter was not built: no C compiler or no Python headers"
)


@pytest.fixture
def compiled(tmp_path):
    opened = []

    def open_one(**options: object):
        opened.append(open_recorder(tmp_path / "journal", emitter="c", **options))
        return opened[-1]

    yield open_one
    for recorder in opened:
        recorder.close()


def test_the_system_clock_is_read_as_python_reads_it(compiled):
    recorder = compiled(clock=time.monotonic_ns)
    before = time.monotonic_ns()
    recorder.admit(1)
    after = time.monotonic_ns()
    recorder.close()

    (batch,) = batches(recorder.directory)
    assert before <= int(batch.records["ts_ns"][-1]) <= after


def test_a_recorder_in_a_cycle_with_its_clock_is_collected(tmp_path):
    class Clock(TickingClock):
        recorder = None

    clock = Clock()
    clock.recorder = open_recorder(tmp_path, clock=clock, emitter="c")
    clock.recorder.admit(1)
    gone = weakref.ref(clock.recorder)

    clock.recorder.close()
    del clock
    gc.collect()

    assert gone() is None


def test_a_recorder_dropped_without_close_leaves_what_it_committed(tmp_path):
    recorder = open_recorder(tmp_path, emitter="c")
    recorder.allocate(1, [1, 2])
    directory, emitted = recorder.directory, recorder.emitted()

    del recorder
    gc.collect()

    assert stored_and_lost(batches(directory))[0] == emitted


def test_a_clock_that_records_does_not_overwrite_a_record(compiled):
    class Meddling(TickingClock):
        recorder = None

        def __call__(self):
            recorder, self.recorder = self.recorder, None
            if recorder is not None:
                recorder.admit(99)
            return super().__call__()

    clock = Meddling()
    recorder = compiled(clock=clock)
    clock.recorder = recorder
    recorder.allocate(7, [1, 2])
    recorder.close()

    (batch,) = batches(recorder.directory)
    assert batch.records["owner"].tolist() == [0, 99, 7]
    assert batch.records["seq"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("ending", ["close", "pause_writing"])
def test_a_clock_that_ends_the_segment_loses_nothing_uncounted(compiled, ending):
    class Ending(TickingClock):
        recorder = None

        def __call__(self):
            recorder, self.recorder = self.recorder, None
            if recorder is not None:
                getattr(recorder, ending)()
            return super().__call__()

    clock = Ending()
    recorder = compiled(clock=clock)
    recorder.admit(1)
    clock.recorder = recorder
    recorder.allocate(7, [1, 2])
    recorder.close()

    stored, lost = stored_and_lost(batches(recorder.directory))
    assert added(stored, lost) == recorder.emitted()
    assert Kind.ALLOCATE not in stored


def test_a_segment_that_lost_its_name_is_left_at_the_next_event(compiled):
    recorder = compiled()
    recorder.admit(1)
    first = recorder._segment
    os.unlink(first.path)
    wait_until(lambda: recorder._reserver.gone_number == first.number)
    wait_until(lambda: recorder._reserver.ready is not None)

    recorder.admit(2)

    assert recorder._segment is not first


def test_counts_stay_exact_over_many_segments(compiled):
    recorder = compiled()
    for _ in range(4):
        fill_one_segment(recorder)
    recorder.close()

    assert stored_and_lost(batches(recorder.directory)) == (recorder.emitted(), {})


def test_a_forked_child_writes_nothing(compiled):
    recorder = compiled()
    recorder.admit(1)
    child = os.fork()
    if child == 0:
        recorder.admit(2)
        recorder.allocate(2, [1, 2, 3])
        os._exit(0 if recorder._closed and recorder.emitted()[Kind.ADMIT] == 1 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    recorder.admit(3)
    recorder.close()

    (batch,) = batches(recorder.directory)
    assert batch.records["owner"].tolist() == [0, 1, 3]


def test_two_threads_by_mistake_end_no_process(compiled):
    recorder = compiled()

    def work(owner: int) -> None:
        # Python's half may find a segment gone between two lines of it.
        with contextlib.suppress(ValueError):
            for number in range(3000):
                recorder.allocate(owner, [number, number + 1])
                recorder.step(number, 1, 1, 1, 1, 0, 1, 1, 1)

    threads = [threading.Thread(target=work, args=(owner,)) for owner in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    recorder.close()

    # What they wrote over each other is lost; memory is not.
    assert stored_and_lost(batches(recorder.directory))[0][Kind.STEP] > 0


def test_numpy_ids_are_recorded_like_lists(compiled):
    recorder = compiled()
    recorder.allocate(np.int64(3), np.array([4, 5], dtype=np.int64))
    recorder.close()

    assert stored_and_lost(batches(recorder.directory))[0][Kind.ALLOCATE] == 2


def test_page_faults_are_taken_piece_by_piece_and_never_of_an_unmapped_segment(tmp_path):
    shape = segment_shape(2**20, total_blocks=1, host_blocks=0)
    segment = reserve_segment(tmp_path, 1, shape)

    pieces = 0
    while segment.touch():
        pieces += 1
    assert pieces == shape.file_bytes / 2**18 == 4
    segment.unmap()
    segment.touched_bytes = 0
    assert not segment.touch()


@pytest.mark.parametrize(("offset", "length"), [(-1, 1), (0, -1), (4096, 4097), (2**62, 2**62)])
def test_page_faults_outside_the_memory_are_refused(offset, length):
    with mmap.mmap(-1, 8192) as memory, pytest.raises(ValueError, match="outside the buffer"):
        populate(memory, offset, length)


HOSTILE = """
import faulthandler, random, sys, tempfile
from pathlib import Path
faulthandler.enable()
from kvpulse.compiled_recorder import HOT_FIELDS, HOT_METHODS, CompiledRecorder
from kvpulse.recorder import Recorder
from tests.kvpulse.factories_calls import Ids, Odd, Raises

choose = random.Random(int(sys.argv[1]))
recorder = Recorder.open(Path(sys.argv[2]), "e", total_blocks=8, block_size=16, emitter="c",
                         segment_bytes=16384)
endless = []
endless.append(endless)
odd = [0, -1, 2**31, 2**32, 2**64, 2**200, 1.5, float("nan"), None, "x", b"xyzw", True, Odd(3),
       Raises(), Ids([1, 2, 3]), [1, 2], (3, 4), [], endless, list(range(70000)), range(9), {1: 2},
       object(), Recorder, memoryview(b"abcdefgh").cast("Q"), [None] * 5, [2**64] * 2, lambda: 1]
names = ["owner", "ids", "tenant", "host", "nonsense", "\\ud800"]
for _ in range(30000):
    name = choose.choice(HOT_METHODS)
    arguments = [choose.choice(odd) for _ in range(choose.randrange(12))]
    named = {choose.choice(names): choose.choice(odd) for _ in range(choose.randrange(3))}
    try:
        getattr(recorder, name)(*arguments, **named)
    except TypeError:
        pass
recorder.allocate(1, [1, 2])
print(sum(recorder.emitted().values()) > 0, recorder.failure == "")
recorder.close()
# Even a recorder that was never opened, and fields that somebody overwrites, end no process.
blank = CompiledRecorder.__new__(CompiledRecorder)
for field in HOT_FIELDS:
    for value in [*odd, (bytearray(64), None, 0, bytearray(512), bytearray(8), bytearray(8)),
                  (bytearray(64), int, 2**80, 1, 2, 3)]:
        try:
            setattr(blank, "_" + field, value)
        except (TypeError, ValueError):
            pass
for name in HOT_METHODS:
    try:
        getattr(blank, name)(*range(9))
    except (AttributeError, TypeError):
        pass
print("survived")
"""


@pytest.mark.parametrize("seed", [1, 2])
def test_hostile_arguments_end_no_process(tmp_path, seed):
    done = run_python(HOSTILE, seed, tmp_path)

    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split() == ["True", "True", "survived"]


ENDLESS = """
import mmap, sys
from pathlib import Path
from kvpulse.recorder import Recorder

recorder = Recorder.open(Path(sys.argv[1]), "engine-a", total_blocks=64, block_size=16,
                         segment_bytes=2**20, run_id="r", emitter="c")
with open(sys.argv[2], "r+b") as file:
    returned = memoryview(mmap.mmap(file.fileno(), 4096)).cast("Q")
print("ready", flush=True)
number = 0
while True:
    number += 1
    recorder.allocate(number, [(number + j) % 2**32 for j in range(1 + number % 9)])
    returned[0] = number
"""


def test_what_a_call_returned_from_survives_kill_9(tmp_path):
    for attempt in range(6):
        journal, page = tmp_path / f"journal-{attempt}", tmp_path / f"page-{attempt}"
        page.write_bytes(bytes(4096))
        writer = subprocess.Popen(
            [sys.executable, "-c", ENDLESS, journal, page],
            stdout=subprocess.PIPE,
            env=child_environment(),
        )
        with writer:
            assert writer.stdout.readline() == b"ready\n"
            wait_until(lambda page=page: page.read_bytes()[:8] > bytes(8), interval=0.001)
            time.sleep(0.003 * attempt)  # so that each dies somewhere else
            writer.send_signal(signal.SIGKILL)
        returned = int.from_bytes(page.read_bytes()[:8], "little")

        read = batches(journal / "engine-a" / "r")

        owners = np.concatenate([batch.records["owner"] for batch in read])
        kinds = np.concatenate([batch.records["kind"] for batch in read])
        allocated = owners[kinds == Kind.ALLOCATE]
        lost = sum(batch.gap.lost[Kind.ALLOCATE] for batch in read if batch.gap is not None)
        assert lost or len(allocated) in {returned, returned + 1}
        assert (np.diff(allocated) == 1).all() or lost
