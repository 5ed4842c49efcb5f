"""A window's recording straight from a journal's directory."""

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import numpy as np

from engine.explain.errors import CannotBeExplained
from kvpulse.events import Kind
from kvpulse.reader import StreamReader
from kvpulse.stream_values import Batch, expand_words
from kvpulse.window_recording import Stated, WindowRecorder, WindowRecording

NS: Final = 1_000_000_000


def record_journal(directory: Path, *, start_seconds: float, seconds: float) -> WindowRecording:
    """Distil a window of a stream; times count from its first record.

    Losses count wherever in the stream they are.

    Raises:
        JournalError: It is no journal that can be read.
        CannotBeExplained: Nothing is in it.
    """
    recorder: WindowRecorder | None = None
    fingerprint: dict[str, Stated] = {}
    num_lost = 0
    for batch in _batches(directory):
        num_lost += 0 if batch.gap is None else sum(batch.gap.lost)
        if not len(batch.records):
            continue
        if recorder is None:
            start_ns = int(batch.records["ts_ns"][0]) + int(start_seconds * NS)
            recorder = WindowRecorder(start_ns, start_ns + int(seconds * NS))
        recorder.take(batch.records, batch.lane, batch.lane_base)
        fingerprint.update(_stated(batch))
    if recorder is None:
        raise CannotBeExplained(f"nothing is recorded in {directory}")
    recorder.num_lost = num_lost
    return recorder.recording(fingerprint)


def _batches(directory: Path) -> Iterator[Batch]:
    reader = StreamReader(directory, is_alive=lambda: False)
    try:
        while (batch := reader.read()) is not None:
            yield batch
    finally:
        reader.close()


def _stated(batch: Batch) -> dict[str, Stated]:
    found: dict[str, Stated] = {}
    for index in np.flatnonzero(batch.records["kind"] == Kind.CONFIG).tolist():
        text = expand_words(batch, index).tobytes()[: int(batch.records["aux"][index])]
        with suppress(ValueError, RecursionError):  # a damaged one says nothing
            stated = json.loads(text)
            found |= stated if isinstance(stated, dict) else {}
    return found
