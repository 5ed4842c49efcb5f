"""Recorders, streams and what a reader makes of them, with only what matters stated."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from kvpulse.events import Kind, event_count
from kvpulse.keyframe import Keyframe, KeyframeSequence
from kvpulse.reader import StreamReader
from kvpulse.recorder import Recorder
from kvpulse.stream_values import Batch, Position, expand_words

SMALL_SEGMENT = 16 * 1024
REPOSITORY = Path(__file__).parents[2]


class TickingClock:
    """A clock that is one microsecond later at each look."""

    def __init__(self, start_ns: int = 1_000_000) -> None:
        self.now_ns = start_ns

    def __call__(self) -> int:
        self.now_ns += 1_000
        return self.now_ns


def open_recorder(journal: Path, **options: object) -> Recorder:
    settings: dict[str, object] = {
        "total_blocks": 64,
        "block_size": 16,
        "clock": TickingClock(),
        "segment_bytes": SMALL_SEGMENT,
    }
    return Recorder.open(journal, "engine-a", **(settings | options))


def batches(directory: Path, position: Position | None = None, **options: int) -> list[Batch]:
    """Read everything there is, as the agent would."""
    with StreamReader(directory, position) as reader:
        return list(read_all(reader, **options))


def read_all(reader: StreamReader, **options: int) -> Iterator[Batch]:
    while (batch := reader.read(**options)) is not None:
        yield batch


def stored_and_lost(read: list[Batch]) -> tuple[dict[Kind, int], dict[Kind, int]]:
    """Count what the records say and what the gaps say, independently of the positions."""
    stored = dict.fromkeys(Kind, 0)
    lost = dict.fromkeys(Kind, 0)
    for batch in read:
        for record in batch.records:
            kind = Kind(int(record["kind"]))
            stored[kind] += event_count(kind, int(record["n"]))
        if batch.gap is not None:
            for kind in Kind:
                lost[kind] += batch.gap.lost[kind]
    return _nonzero(stored), _nonzero(lost)


def added(*counts: dict[Kind, int]) -> dict[Kind, int]:
    total = dict.fromkeys(Kind, 0)
    for each in counts:
        for kind, number in each.items():
            total[kind] += number
    return _nonzero(total)


def of_kind(read: list[Batch], kind: Kind) -> list[tuple[np.void, list[int]]]:
    """Return each record of a kind with its payload words."""
    return [
        (batch.records[index], expand_words(batch, index).tolist())
        for batch in read
        for index in np.flatnonzero(batch.records["kind"] == kind)
    ]


def busy_keyframe() -> Keyframe:
    """A pool of 64 with two live sequences that share block 3, and block 9 cached."""
    counts = [0] * 64
    counts[3], counts[4], counts[5] = 2, 1, 1
    running = KeyframeSequence(
        owner=7, state=2, tenant=1, since_ns=5, arrived_ns=4, prompt_tokens=40, table=[3, 4]
    )
    waiting = KeyframeSequence(
        owner=8, state=3, cause=4, flags=12, blocker=7, priority=-2, preemptions=1, table=[3, 5]
    )
    return Keyframe(counts, {3: 2**64 - 1, 9: 17}, [9], [running, waiting], [0, 1], step=2**33)


def run_python(code: str, *arguments: object, **options: object) -> subprocess.CompletedProcess:
    """Run `code` in a fresh interpreter that finds this checkout."""
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        env=child_environment(),
        **options,
    )


def child_environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(REPOSITORY)}


def _nonzero(counts: dict[Kind, int]) -> dict[Kind, int]:
    return {kind: number for kind, number in counts.items() if number}
