"""Which of the two writers records: the C emitter where it was built, else Python.

Both write the same bytes; Python is the reference. `KVPULSE_PURE_PYTHON=1` in the environment, or
`Recorder.open(..., emitter="python")`, asks for the reference.
"""

import os
from collections.abc import Callable
from enum import StrEnum
from mmap import mmap
from typing import Final

from kvpulse.errors import ConfigError

# `HotPath`: the fields that both writers need; first in every recorder, so that one set of classes
# serves both. `populate(memory, offset, length)`: takes page faults without the GIL.
populate: Callable[[mmap, int, int], None] | None
try:
    from kvpulse._emitter import HotPath as HotPath
    from kvpulse._emitter import populate
except ImportError:  # built without a compiler

    class HotPath:  # type: ignore[no-redef]
        """Nothing: Python keeps the fields in slots of its own."""

        __slots__ = ()

    populate = None

PURE_PYTHON: Final = "KVPULSE_PURE_PYTHON"


class Emitter(StrEnum):
    """What writes the records."""

    PYTHON = "python"
    C = "c"


def emitter() -> Emitter:
    """Return the writer that a recorder opened now would use.

    Raises:
        ConfigError: The environment variable is neither 0 nor 1.
    """
    value = os.environ.get(PURE_PYTHON, "")
    if value not in {"", "0", "1"}:
        raise ConfigError(f"{PURE_PYTHON} is {value!r}; use 1 for the Python writer, 0 or nothing")
    return Emitter.C if value != "1" and is_built() else Emitter.PYTHON


def is_built() -> bool:
    """Tell whether the C emitter was built with this package, and loads."""
    return populate is not None


def chosen(wanted: str | None) -> Emitter:
    """Return the writer that was asked for by name, or without a name the one in force.

    Raises:
        ConfigError: There is no such writer, or it was not built here.
    """
    if wanted is None:
        return emitter()
    if wanted not in set(Emitter):
        raise ConfigError(f"emitter {wanted!r} is none of {', '.join(Emitter)}")
    if wanted == Emitter.C and not is_built():
        raise ConfigError(
            "emitter 'c' was not built: install kvpulse again where a C compiler and Python's "
            "headers are (apt-get install build-essential python3-dev)"
        )
    return Emitter(wanted)
