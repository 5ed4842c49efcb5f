"""A process that records as fast as it can and keeps a tally of its own; run by the loss tests.

`python -m tests.kvpulse.writer_process JOURNAL SECONDS` writes one line of JSON when it ends: what
it emitted per kind code, counted beside the recorder, and what the recorder could not write. A line
on its standard input makes it do something in between: `nobody` drops its privileges.
"""

import json
import os
import select
import sys
import time
from pathlib import Path

from kvpulse.events import Kind
from kvpulse.recorder import Recorder

NOBODY = 65534


def main(journal: str, seconds: str, segment_bytes: str, pause: str) -> None:
    tally = dict.fromkeys((Kind.ALLOCATE, Kind.FREE, Kind.ADMIT, Kind.STEP), 0)
    recorder = Recorder.open(
        Path(journal),
        "engine-a",
        total_blocks=64,
        block_size=16,
        segment_bytes=int(segment_bytes),
        run_id="run",
    )
    print("ready", flush=True)
    deadline = time.monotonic() + float(seconds)
    step = 0
    while time.monotonic() < deadline:
        step += 1
        recorder.admit(step)
        recorder.allocate(step, [1, 2, 3])
        recorder.allocate(step, [4])
        recorder.free(step, [1, 2, 3, 4], 0, 2)
        recorder.step(step, 1, 1, 1, 1, 0, 1, 1, 1)
        for kind, events in zip(tally, (4, 4, 1, 1), strict=True):
            tally[kind] += events
        if step % 50 == 0:
            time.sleep(float(pause))
            obey()
    recorder.close()
    not_written = {int(kind): events for kind, events in recorder.not_written().items()}
    emitted = {int(kind): events for kind, events in recorder.emitted().items()}
    print(json.dumps({"tally": tally, "emitted": emitted, "not_written": not_written}), flush=True)


def obey() -> None:
    """Do what the test asked for on standard input, if anything."""
    if select.select([sys.stdin], [], [], 0)[0] and sys.stdin.readline() == "nobody\n":
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        print("dropped", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
