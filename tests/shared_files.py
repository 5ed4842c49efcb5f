"""Reference captures and traces that lie beside a checkout on some machines, never inside it."""

import os
from pathlib import Path

import pytest


def shared_path(name: str) -> Path:
    """Return the path of a shared reference file, or skip the test that asked for it."""
    folder = os.environ.get("KVPULSE_SHARED") or Path(__file__).parents[2] / "shared"
    path = Path(folder) / name
    if not path.exists():
        pytest.skip(f"no reference file {name}: set KVPULSE_SHARED to the folder that holds it")
    return path
