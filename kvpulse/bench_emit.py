"""`kvpulse bench emit`: what recording costs the engine's thread.

Every figure is CPU time of one thread, the median of interleaved rounds. "bare" is `pack_into` of
the nine fields at a moving offset of a shared mmap with `time.monotonic_ns()`, nothing else, in the
same process; ratios to it survive a noisy machine. Figures with `_c` are those of the C emitter,
null where it was not built; the others are the Python writer's. What was recorded is read back and
compared before anything is timed.
"""

import argparse
import json
import mmap
import platform
import random
import statistics
import tempfile
import time
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from kvpulse.emitter_choice import Emitter, emitter, is_built
from kvpulse.events import RECORD, SequenceState
from kvpulse.keyframe import Keyframe, KeyframeSequence
from kvpulse.recorder import Recorder

CALLS: Final = 20_000
ROUNDS: Final = 25
CALLS_OF_64: Final = 2_000
SEGMENT_BYTES: Final = 64 * 2**20
ROTATIONS: Final = 15
POOLS: Final = (4_096, 65_536)
BLOCK_SIZE: Final = 16


class Figure(NamedTuple):
    """One thing to time: its name, and a round that returns CPU nanoseconds per call."""

    name: str
    time_round: Callable[[], float]


def main(argv: list[str]) -> int:
    """Measure, print, and return the exit code."""
    parser = argparse.ArgumentParser(prog="kvpulse bench emit", description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--seed", type=int, default=1, help="of the block ids")
    options = parser.parse_args(argv)
    results = measure(options.seed)
    if options.json:
        print(json.dumps(results))
        return 0
    for name, value in results.items():
        print(f"{name:22} {value:.3f}" if isinstance(value, float) else f"{name:22} {value}")
    return 0


def measure(seed: int = 1) -> dict[str, float | int | str | None]:
    """Return every figure by its name."""
    choose = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="kvpulse-bench-", dir=_memory()) as folder:
        times = _time_calls(Path(folder), choose)
        rotations = {
            f"rotation_ms_{blocks}": _rotation_ms(Path(folder), blocks, choose) for blocks in POOLS
        }
    bare, one = times["bare"], times["one"]
    return {
        "bare_ns": round(bare, 1),
        "one_ns": round(one, 1),
        "admit_ns": round(times["admit"], 1),
        "sixty_four_ns": round(times["sixty_four"], 1),
        "one_over_bare": round(one / bare, 3),
        "admit_over_bare": round(times["admit"] / bare, 3),
        **_compiled(times),
        **rotations,
        "emitter": emitter().value,
        "seed": seed,
        "machine": f"{platform.machine()} {platform.python_implementation()} "
        f"{platform.python_version()}",
    }


def _compiled(times: dict[str, float]) -> dict[str, float | None]:
    """Return the C emitter's figures, or None for each where there are none."""
    if "one_c" not in times:
        names = ("one_c_ns", "admit_c_ns", "sixty_four_c_ns", "one_c_over_bare")
        return dict.fromkeys(names)
    return {
        "one_c_ns": round(times["one_c"], 1),
        "admit_c_ns": round(times["admit_c"], 1),
        "sixty_four_c_ns": round(times["sixty_four_c"], 1),
        "one_c_over_bare": round(times["one_c"] / times["bare"], 3),
    }


def _figures(recorder: Recorder, ids: list[int], suffix: str) -> list[Figure]:
    return [
        Figure("one" + suffix, lambda: _one(recorder, ids[:1])),
        Figure("admit" + suffix, lambda: _admit(recorder)),
        Figure("sixty_four" + suffix, lambda: _several(recorder, ids)),
    ]


def _time_calls(folder: Path, choose: random.Random) -> dict[str, float]:
    ids = [choose.randrange(4_096) for _ in range(64)]
    shared = mmap.mmap(-1, SEGMENT_BYTES)
    figures = [Figure("bare", lambda: _bare(shared))]
    recorders = []
    for suffix, name in (("", Emitter.PYTHON), ("_c", Emitter.C)):
        if name is Emitter.C and not is_built():
            continue
        _check_what_is_recorded(folder, ids, name)
        recorder = Recorder.open(
            folder,
            f"emit-{name}",
            total_blocks=4_096,
            block_size=BLOCK_SIZE,
            segment_bytes=SEGMENT_BYTES,
            emitter=name,
        )
        recorders.append(recorder)
        figures += _figures(recorder, ids, suffix)
    rounds: dict[str, list[float]] = {figure.name: [] for figure in figures}
    for _ in range(ROUNDS):
        for figure in figures:
            rounds[figure.name].append(figure.time_round())
    lost = [recorder.not_written() for recorder in recorders]
    for recorder in recorders:
        recorder.close()
    shared.close()
    assert not any(lost), f"the bench outran its segments: {lost}"
    return {name: statistics.median(values) for name, values in rounds.items()}


def _bare(shared: mmap.mmap) -> float:
    pack_into = RECORD.pack_into
    monotonic_ns = time.monotonic_ns
    at = 0
    start = time.thread_time_ns()
    for number in range(CALLS):
        pack_into(shared, at, monotonic_ns(), number, 1, 0, 0, 7, 5, 1, 1)
        at += 32
    return (time.thread_time_ns() - start) / CALLS


def _one(recorder: Recorder, ids: list[int]) -> float:
    allocate = recorder.allocate
    start = time.thread_time_ns()
    for number in range(CALLS):
        allocate(number, ids)
    return (time.thread_time_ns() - start) / CALLS


def _admit(recorder: Recorder) -> float:
    admit = recorder.admit
    start = time.thread_time_ns()
    for number in range(CALLS):
        admit(number)
    return (time.thread_time_ns() - start) / CALLS


def _several(recorder: Recorder, ids: list[int]) -> float:
    allocate = recorder.allocate
    start = time.thread_time_ns()
    for number in range(CALLS_OF_64):
        allocate(number, ids)
    return (time.thread_time_ns() - start) / CALLS_OF_64


def _check_what_is_recorded(folder: Path, ids: list[int], name: Emitter) -> None:
    """Record one call of each kind timed here and compare what a reader finds."""
    from kvpulse.reader import StreamReader
    from kvpulse.stream_values import expand_words

    recorder = Recorder.open(
        folder, f"check-{name}", total_blocks=4_096, block_size=BLOCK_SIZE, emitter=name
    )
    recorder.allocate(7, ids[:1])
    recorder.admit(8)
    recorder.allocate(9, ids)
    recorder.close()
    with StreamReader(recorder.directory) as reader:
        batch = reader.read()
    assert batch is not None
    assert batch.records["owner"].tolist() == [0, 7, 8, 9]
    payloads = [expand_words(batch, index).tolist() for index in (1, 2, 3)]
    assert payloads == [ids[:1], [], ids]


def _rotation_ms(folder: Path, blocks: int, choose: random.Random) -> float:
    """Return the median CPU milliseconds of one rotation with a keyframe of a full pool."""
    from kvpulse.keyframe_decoder import decode_keyframe
    from kvpulse.reader import StreamReader
    from kvpulse.stream_values import expand_words

    keyframe = _full_pool(blocks, choose)
    recorder = Recorder.open(
        folder,
        f"rotation-{blocks}",
        total_blocks=blocks,
        block_size=BLOCK_SIZE,
        snapshot=lambda: keyframe,
    )
    times = []
    for _ in range(ROTATIONS):
        while recorder._reserver.ready is None:
            time.sleep(0.002)
        start = time.thread_time_ns()
        rotated = recorder._rotate(at_safe_point=True)
        times.append((time.thread_time_ns() - start) / 1e6)
        assert rotated
    missing = recorder.missing_keyframes
    recorder.close()
    with StreamReader(recorder.directory) as reader:
        batch = reader.read()
    assert batch is not None
    assert missing == 0
    read = decode_keyframe(expand_words(batch, 0)).keyframe
    assert list(read.counts) == list(keyframe.counts)
    assert read.hashes == dict(enumerate(keyframe.hashes))
    return round(statistics.median(times), 4)


def _full_pool(blocks: int, choose: random.Random) -> Keyframe:
    """Return a pool that is three quarters active, the rest cached, each block with a hash."""
    active = blocks * 3 // 4
    length = 64
    sequences = [
        KeyframeSequence(
            owner=1 + first // length,
            state=SequenceState.RUNNING,
            prompt_tokens=length * BLOCK_SIZE,
            table=list(range(first, first + length)),
        )
        for first in range(0, active, length)
    ]
    return Keyframe(
        counts=array("I", [1] * active + [0] * (blocks - active)),
        hashes=array("Q", [choose.getrandbits(64) | 1 for _ in range(blocks)]),
        cached_blocks=list(range(active, blocks)),
        sequences=sequences,
    )


def _memory() -> str | None:
    """Return a directory in memory, so that a disk is not what is measured."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None
