"""Recorded engines with a fault, made once."""

import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from agent.reads.reads import Reads
from tests.agent.factories_store import empty_store
from tests.agent.incidents.factories_watch import WatchedEngine, record_faulty, watched_engine

STALL = "stall_admission:after_seconds=30,for_seconds=45"
LEAK = "leak_slow:every=2,after_seconds=20"
Watched = Callable[[Path, str], AbstractContextManager[tuple[WatchedEngine, Reads]]]


@pytest.fixture(scope="session")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Watched:
    """Follow a copy of a recording (`stall`, `leak`) in a folder, into a store of its own."""
    recordings = tmp_path_factory.mktemp("recordings")
    record_faulty(recordings / "stall", STALL)
    record_faulty(recordings / "leak", LEAK, seconds=125.0)

    def follow(folder: Path, name: str) -> AbstractContextManager[tuple[WatchedEngine, Reads]]:
        shutil.copytree(recordings / name, folder / "journal")
        return watched_engine(folder, empty_store(folder))

    return follow
