"""An engine that is killed: by the kernel for its memory, by a node that goes away."""

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass

from engine.faults.fault import Fault, FaultParameters
from engine.faults.setup import FaultSetup


def kill_this_process() -> None:
    """End the process at once; nothing is tidied up."""
    os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True, slots=True)
class EngineCrashParameters(FaultParameters):
    """When."""

    after_seconds: float = 10.0


class EngineCrash(Fault):
    """The engine's process kills itself between two steps."""

    def __init__(
        self,
        setup: FaultSetup,
        parameters: EngineCrashParameters,
        *,
        kill: Callable[[], None] = kill_this_process,
    ) -> None:
        super().__init__("engine_crash", setup, parameters)
        self._kill = kill

    def before_step(self) -> None:
        """Do it when the time has come."""
        if self.acts_now:
            self.state("the engine kills itself now", signal=int(signal.SIGKILL))
            self._kill()
