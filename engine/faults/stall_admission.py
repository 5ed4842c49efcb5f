"""A scheduler that lets nobody in any more, although there is room."""

from dataclasses import dataclass

from engine.faults.fault import Fault, FaultParameters
from engine.faults.setup import FaultSetup


@dataclass(frozen=True, slots=True)
class StallAdmissionParameters(FaultParameters):
    """When; what runs by then goes on to its end."""

    after_seconds: float = 5.0


class StallAdmission(Fault):
    """Nothing is admitted or resumed; the engine lives, and says so."""

    def __init__(self, setup: FaultSetup, parameters: StallAdmissionParameters) -> None:
        super().__init__("stall_admission", setup, parameters)
        self._stalls = False

    def admits(self) -> bool:
        """Return False while it acts."""
        stalls = self.acts_now
        if stalls is not self._stalls:
            self._stalls = stalls
            words = "nobody is admitted from now on" if stalls else "sequences are admitted again"
            self.state(words, admits=not stalls)
        return not stalls
