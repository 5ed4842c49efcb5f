"""What every fault is built with: the engine's clock and settings, and where its truth goes."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from engine.clock import Clock, VirtualClock
from engine.config import EngineConfig


class TruthFile:
    """What faults really did, as lines of JSON that tests read and nothing else does.

    Each line has `fault`, `t_ns` (engine time), `wall_ns` and facts of the act: numbers of blocks
    and sequences, aliases of tenants, amounts. Nothing of a prompt.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, line: dict[str, object]) -> None:
        """Append one line, which is on its way to the disk when this returns."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


@dataclass(frozen=True, slots=True)
class FaultSetup:
    """What a fault may know of the engine that it is put into.

    Attributes:
        config: The engine's settings.
        truth: None writes nothing.
        wall_clock: The true one, whatever a fault does to the one that is recorded.
    """

    clock: Clock
    config: EngineConfig
    truth: TruthFile | None = None
    wall_clock: Callable[[], int] = time.time_ns

    def let_pass(self, ns: int) -> None:
        """Let engine time pass: on a virtual clock by its word, else by waiting."""
        if isinstance(self.clock, VirtualClock):
            self.clock.advance(ns)
        else:
            time.sleep(ns / 1e9)
