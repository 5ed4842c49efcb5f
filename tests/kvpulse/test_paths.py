"""Defaults follow the XDG base directories."""

import os
from pathlib import Path

from kvpulse import paths


def test_the_journal_lies_in_the_runtime_directory():
    assert paths.journal_dir({"XDG_RUNTIME_DIR": "/run/user/7"}) == Path("/run/user/7/kvpulse")


def test_without_one_it_lies_in_shared_memory_under_the_users_number():
    assert paths.journal_dir({}) == Path(f"/dev/shm/kvpulse-{os.geteuid()}")


def test_the_store_and_its_key_lie_in_the_state_directory():
    store = paths.store_path({"XDG_STATE_HOME": "/state"})

    assert store == Path("/state/kvpulse/kvpulse.db")
    assert paths.key_path(store) == Path("/state/kvpulse/identity.key")
    assert paths.store_path({"HOME": "/home/x"}) == Path("/home/x/.local/state/kvpulse/kvpulse.db")


def test_models_lie_in_the_cache_directory():
    assert paths.models_dir({"XDG_CACHE_HOME": "/c"}) == Path("/c/kvpulse/models")
    assert paths.models_dir({"XDG_CACHE_HOME": "relative", "HOME": "/h"}) == Path(
        "/h/.cache/kvpulse/models"
    )
