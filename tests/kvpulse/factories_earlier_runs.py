"""Runs of other processes that are over, or still go on, in a journal of small segments."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from kvpulse.ended_run import ENDED_FILE
from kvpulse.events import Kind
from tests.kvpulse.factories_journal import child_environment

SEGMENT_BYTES = 61_440

# A writer that fills segments, says what it emitted, then closes, dies, or stays.
WRITER = """
import json, os, sys, time
from pathlib import Path
from kvpulse.recorder import Recorder
journal, run, end, count = sys.argv[1:]
recorder = Recorder.open(
    Path(journal), "engine-a", total_blocks=64, block_size=16, run_id=run,
    segment_bytes=61440, max_bytes=1 << 30,
)
for step in range(int(count)):
    recorder.allocate(step, [1, 2, 3])
    recorder.free(step, [1, 2, 3], 0, 2)
    recorder.step(step, 1, 1, 1, 1, 0, 1, 1, 1)
    while step % 20 == 0 and recorder._reserver.ready is None:
        time.sleep(0.001)
if end != "kill" and end != "stay":
    recorder.close(finished=end == "finish")
emitted = {int(kind): events for kind, events in recorder.emitted().items()}
assert not recorder.not_written()
print(json.dumps(emitted), flush=True)
if end == "stay":
    time.sleep(600)
if end == "kill":
    os.kill(os.getpid(), 9)
"""


class EarlierRun(NamedTuple):
    directory: Path
    emitted: dict[Kind, int]
    process: subprocess.Popen[str]


def earlier_run(journal: Path, run: str, end: str, *, steps: int = 2_500) -> EarlierRun:
    """Let another process record a run, and wait for its last word.

    Args:
        end: finish, give_up, kill; or stay: the process lives on.
    """
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(journal), run, end, str(steps)],
        stdout=subprocess.PIPE,
        text=True,
        env=child_environment(),
    )
    assert process.stdout is not None
    said = json.loads(process.stdout.readline())
    if end != "stay":
        process.wait()
        process.stdout.close()
    return EarlierRun(
        journal / "engine-a" / run, {Kind(int(k)): n for k, n in said.items()}, process
    )


def finished_runs(journal: Path, number: int) -> list[Path]:
    """Record many short runs in one other process."""
    code = (
        "import sys\nfrom pathlib import Path\nfrom kvpulse.recorder import Recorder\n"
        "for run in range(int(sys.argv[2])):\n"
        "    recorder = Recorder.open(Path(sys.argv[1]), 'engine-a', total_blocks=8,"
        " block_size=16, run_id=f'short-{run:03d}', segment_bytes=8192)\n"
        "    recorder.admit(1)\n    recorder.close()\n"
    )
    arguments = [sys.executable, "-c", code, str(journal), str(number)]
    subprocess.run(arguments, check=True, env=child_environment())
    return sorted((journal / "engine-a").glob("short-*"))


def mark_ended(directory: Path, *, hours_ago: float) -> None:
    """Let a run have been over for some time."""
    mark = directory / ENDED_FILE
    mark.touch()
    then = time.time() - hours_ago * 3600
    os.utime(mark, (then, then))


def segment_names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.glob("*.seg"))
