"""A wall clock that is set: by somebody, by NTP after a long sleep, by a migrated machine."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from engine.faults.fault import Fault, FaultParameters
from engine.faults.setup import FaultSetup

_PLACES: Final = (1, 0, -1, 0)  # in steps ahead of the true time: forwards, back, back, forwards


@dataclass(frozen=True, slots=True)
class ClockStepParameters(FaultParameters):
    """How far and how often.

    Attributes:
        step_seconds: How far the clock is set, forwards and backwards in turn.
        every_seconds: Engine time between two of them.
    """

    after_seconds: float = 3.0
    step_seconds: float = 3600.0
    every_seconds: float = 30.0

    def __post_init__(self) -> None:
        FaultParameters.__post_init__(self)
        self.need("step_seconds", self.step_seconds > 0, "above 0")
        self.need("every_seconds", self.every_seconds > 0, "above 0")


class ClockStep(Fault):
    """The wall clock of the recording jumps forwards and back; engine time does not."""

    def __init__(self, setup: FaultSetup, parameters: ClockStepParameters) -> None:
        super().__init__("clock_step", setup, parameters)
        self._step_ns = int(parameters.step_seconds * 1e9)
        self._every_ns = int(parameters.every_seconds * 1e9)
        self._offset_ns = 0

    def wall_clock(self, read: Callable[[], int]) -> Callable[[], int]:
        """Return the clock that jumps."""
        return lambda: read() + self._present_offset_ns()

    def before_step(self) -> None:
        """Notice a step in time, so that its truth is dated when it happened."""
        self._present_offset_ns()

    def _present_offset_ns(self) -> int:
        offset_ns = 0
        if self.acts_now:
            num_steps = (self.setup.clock.now_ns() - self.began_ns) // self._every_ns
            offset_ns = _PLACES[num_steps % len(_PLACES)] * self._step_ns
        step_ns = offset_ns - self._offset_ns
        if step_ns:
            self._offset_ns = offset_ns
            words = f"the wall clock steps by {step_ns / 1e9:+g} s, to {offset_ns / 1e9:+g} s"
            self.state(words, step_ns=step_ns, offset_ns=offset_ns)
        return offset_ns
