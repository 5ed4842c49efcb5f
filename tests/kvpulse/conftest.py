"""Recorders that are closed when a test ends."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kvpulse.recorder import Recorder
from tests.kvpulse.factories_journal import open_recorder


@pytest.fixture
def record(tmp_path: Path) -> Iterator[Callable[..., Recorder]]:
    """Open recorders in the test's own journal."""
    opened: list[Recorder] = []

    def open_one(**options: object) -> Recorder:
        recorder = open_recorder(tmp_path / "journal", **options)
        opened.append(recorder)
        return recorder

    yield open_one
    for recorder in opened:
        recorder.close()
