"""Faults that can be put into an engine on purpose, to see them found.

Nothing that judges the engine reads the injector or its truth file; tests compare with it.
"""

import json
import logging
from pathlib import Path
from typing import Final, Protocol

from engine.clock import Clock
from engine.errors import ConfigError

FAULT_NAMES: Final = ("leak_on_cancel",)

_log = logging.getLogger(__name__)


class FaultInjector(Protocol):
    """Decides where the engine misbehaves."""

    def leaks_on_cancel(self, seq_id: int, block_ids: list[int]) -> bool:
        """Return whether a cancelled sequence's blocks are to be lost instead of freed."""


class NoFaults:
    """The default: nothing misbehaves."""

    def leaks_on_cancel(self, seq_id: int, block_ids: list[int]) -> bool:
        """Return False."""
        return False


class LeakOnCancel:
    """Cancelled sequences do not give their blocks back.

    Each leak is said aloud in the log, and appended to the truth file, if there is one, as a line
    of JSON: `fault`, `t_ns` (engine time), `owner`, `blocks`.
    """

    def __init__(self, *, clock: Clock, truth: Path | None = None) -> None:
        self._clock = clock
        self._truth = truth

    def leaks_on_cancel(self, seq_id: int, block_ids: list[int]) -> bool:
        """Note the leak and return True, for a sequence that holds blocks."""
        if not block_ids:
            return False
        _log.warning(
            "FAULT leak_on_cancel: sequence %d was cancelled and keeps %d blocks: %s",
            seq_id,
            len(block_ids),
            block_ids,
        )
        if self._truth is not None:
            line = {
                "fault": "leak_on_cancel",
                "t_ns": self._clock.now_ns(),
                "owner": seq_id,
                "blocks": list(block_ids),
            }
            with self._truth.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        return True


def fault_named(name: str, *, clock: Clock, truth: Path | None = None) -> FaultInjector:
    """Return the injector of a fault by its name, "" for none."""
    if not name:
        return NoFaults()
    if name == "leak_on_cancel":
        return LeakOnCancel(clock=clock, truth=truth)
    raise ConfigError("fault", found=name, accepted=", ".join(FAULT_NAMES))
