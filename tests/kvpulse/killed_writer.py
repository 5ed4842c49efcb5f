"""A process that records what can be checked later, and says in shared memory what it is doing.

`python -m tests.kvpulse.killed_writer JOURNAL PAGE PHASE SEED MUTANT`. The page's first byte is the
phase that the writer is in; word 1 is how many `allocate` calls have returned. In the wanted phase
it lingers now and then, at a place that the seed chooses, so that a killer meets it there.
"""

import mmap
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

from kvpulse.keyframe import Keyframe
from kvpulse.record_writer import RecordWriter
from kvpulse.recorder import Recorder

RUNNING, ROTATION, KEYFRAME, LANE = range(4)
PHASES = ("running", "rotation", "keyframe", "lane")
BLOCKS = 64
PAGE_BYTES = 4096


def ids_of(number: int) -> list[int]:
    """Return the ids that call `number` allocates: one, or a few, never the same twice."""
    return [(number * 2_654_435_761 + j) % 2**32 for j in range(1 + number % 9)]


def counts_after(number: int) -> list[int]:
    """Return the counts that a keyframe after call `number` states."""
    return [(number + block) % 5 for block in range(BLOCKS)]


class Watched(Recorder):
    """Publishes its phase; lingers where it is told to."""

    __slots__ = ("choose", "page", "wanted")

    def linger(self) -> None:
        if hasattr(self, "page") and self.page[0] == self.wanted and self.choose.random() < 0.5:
            time.sleep(0.005)

    def inside(self, phase: int, work: Callable[[], object]) -> object:
        if not hasattr(self, "page"):
            return work()
        before = self.page[0]
        self.page[0] = phase
        try:
            return work()
        finally:
            self.page[0] = before

    def _rotate(self, **options):
        return self.inside(ROTATION, lambda: super(Watched, self)._rotate(**options))

    def _header(self, segment):
        self.linger()
        return super()._header(segment)

    def _adopt_loss_page(self):
        self.linger()
        super()._adopt_loss_page()

    def _aim(self):
        super()._aim()
        if hasattr(self, "page"):
            self.linger()
            *others, lane = self._hot
            self._hot = (*others, SlowLane(lane, self))

    def _put_keyframe(self, parts):
        def work():
            self.linger()
            return super(Watched, self)._put_keyframe(parts)

        return self.inside(KEYFRAME, work)


class SlowLane:
    """A lane that is written in two halves."""

    def __init__(self, lane, recorder):
        self.lane = lane
        self.recorder = recorder

    def __setitem__(self, where, words):
        middle = where.start + len(words) // 2
        if where.stop > len(self.lane):
            raise ValueError("no room")

        def work():
            self.lane[where.start : middle] = words[: middle - where.start]
            self.recorder.linger()
            self.lane[middle : where.stop] = words[middle - where.start :]

        self.recorder.inside(LANE, work)


class CommitsFirst(Watched):
    """The mutant: the commit word before what it commits."""

    __slots__ = ()

    def _emit_lane(self, kind, flags, tenant, owner, words, n, aux):
        records, _, _, _, commit, _ = self._hot
        at = self._index
        if len(records) > at << 5:
            commit[0] = at + 1
        return RecordWriter._emit_lane(self, kind, flags, tenant, owner, words, n, aux)


def main(journal: str, page: str, wanted: str, seed: str, mutant: str) -> None:
    with open(page, "r+b") as file:
        mapped = mmap.mmap(file.fileno(), PAGE_BYTES)
    calls = memoryview(mapped).cast("Q")
    kind = CommitsFirst if mutant == "mutant" else Watched
    done = 0
    recorder = kind.open(
        Path(journal),
        "engine-a",
        total_blocks=BLOCKS,
        block_size=16,
        segment_bytes=8192,
        run_id="r",
    )
    recorder.page, recorder.wanted = mapped, int(wanted)
    recorder.choose = random.Random(int(seed))
    recorder.set_snapshot(lambda: Keyframe(counts_after(done), {}, (), (), step=done))
    recorder._aim()
    print("ready", flush=True)
    while True:
        done += 1
        recorder.allocate(done, ids_of(done))
        calls[1] = done
        if done % 20 == 0:
            recorder.step(done, 1, 1, 1, 1, 0, 1, 1, 1)
            while recorder._reserver.ready is None:
                time.sleep(0.0002)  # segments this small fill faster than they are reserved


if __name__ == "__main__":
    main(*sys.argv[1:])
