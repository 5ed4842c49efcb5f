"""Recorders that are closed when a test ends."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kvpulse.emitter_choice import Emitter, is_built
from kvpulse.recorder import Recorder
from tests.kvpulse.factories_journal import open_recorder


@pytest.fixture(params=list(Emitter))
def record(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Callable[..., Recorder]]:
    """Open recorders in the test's own journal: once with each writer."""
    if request.param is Emitter.C and not is_built():
        pytest.skip("the C emitter was not built: no C compiler or no Python headers")
    opened: list[Recorder] = []

    def open_one(**options: object) -> Recorder:
        recorder = open_recorder(tmp_path / "journal", **{"emitter": request.param} | options)
        opened.append(recorder)
        return recorder

    yield open_one
    for recorder in opened:
        recorder.close()
