"""Faults by their names."""

from pathlib import Path
from typing import Final

from engine.clock import Clock
from engine.errors import ConfigError
from engine.faults.leaks import LeakOnCancel
from engine.faults.protocol import FaultInjector, NoFaults

FAULT_NAMES: Final = ("leak_on_cancel",)


def fault_named(name: str, *, clock: Clock, truth: Path | None = None) -> FaultInjector:
    """Return the injector of a fault by its name, "" for none."""
    if not name:
        return NoFaults()
    if name == "leak_on_cancel":
        return LeakOnCancel(clock=clock, truth=truth)
    raise ConfigError("fault", found=name, accepted=", ".join(FAULT_NAMES))
