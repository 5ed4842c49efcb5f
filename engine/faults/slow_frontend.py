"""A server that is slow to hand requests on: a busy event loop, a slow tokenizer, a full proxy."""

from dataclasses import dataclass

from engine.faults.fault import Fault, FaultParameters
from engine.faults.setup import FaultSetup


@dataclass(frozen=True, slots=True)
class SlowFrontendParameters(FaultParameters):
    """How slow.

    Attributes:
        delay_seconds: Mean time that a request is held; each half to one and a half times that.
    """

    delay_seconds: float = 1.0

    def __post_init__(self) -> None:
        FaultParameters.__post_init__(self)
        self.need("delay_seconds", self.delay_seconds > 0, "above 0")


class SlowFrontend(Fault):
    """Requests are held between their acceptance and the engine."""

    def __init__(self, setup: FaultSetup, parameters: SlowFrontendParameters) -> None:
        super().__init__("slow_frontend", setup, parameters)
        self._delay_seconds = parameters.delay_seconds

    def frontend_delay_seconds(self) -> float:
        """Draw how long one request is held."""
        if not self.acts_now:
            return 0.0
        seconds = self._delay_seconds * self.random.uniform(0.5, 1.5)
        self.state(f"a request is held for {seconds:.3f} s", delay_ns=int(seconds * 1e9))
        return seconds
