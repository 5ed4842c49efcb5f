"""A recording with holes: a full disk that comes and goes, a journal folder that is away."""

from dataclasses import dataclass

from engine.faults.fault import Fault, FaultParameters
from engine.faults.setup import FaultSetup


@dataclass(frozen=True, slots=True)
class DropEventsParameters(FaultParameters):
    """How long the holes are.

    Attributes:
        drop_seconds: Mean engine time in which nothing is written.
        keep_seconds: Mean engine time between two holes.
    """

    after_seconds: float = 3.0
    drop_seconds: float = 2.0
    keep_seconds: float = 10.0

    def __post_init__(self) -> None:
        FaultParameters.__post_init__(self)
        self.need("drop_seconds", self.drop_seconds > 0, "above 0")
        self.need("keep_seconds", self.keep_seconds > 0, "above 0")


class DropEvents(Fault):
    """The Recorder stops writing for stretches, and counts what it does not write."""

    def __init__(self, setup: FaultSetup, parameters: DropEventsParameters) -> None:
        super().__init__("drop_events", setup, parameters)
        self._drop_seconds = parameters.drop_seconds
        self._keep_seconds = parameters.keep_seconds
        self._drops = False
        self._changes_ns = self.began_ns

    def recording_allowed(self) -> bool:
        """Return False in a hole."""
        now_ns = self.setup.clock.now_ns()
        over = self.ends_ns is not None and now_ns >= self.ends_ns
        if over:
            if self._drops:
                self._change(now_ns)
            return True
        while now_ns >= self._changes_ns:
            self._change(self._changes_ns)
        return not self._drops

    def _change(self, at_ns: int) -> None:
        self._drops = not self._drops
        mean = self._drop_seconds if self._drops else self._keep_seconds
        self._changes_ns = at_ns + int(mean * self.random.uniform(0.5, 1.5) * 1e9)
        words = "nothing is recorded from now on" if self._drops else "recording goes on"
        self.state(words, recording=not self._drops)
