"""What all faults have in common: when they act, how they say so, where the truth goes."""

import logging
import random
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Final

from engine.errors import ConfigError
from engine.faults.protocol import NoFaults
from engine.faults.setup import FaultSetup

FIRST_QUIET_SECONDS: Final = 1.0  # of wall time, after the first line of an act
MOST_QUIET_SECONDS: Final = 60.0  # each pause is twice the one before, up to this

_log = logging.getLogger("kvpulse.faults")


@dataclass(frozen=True, slots=True)
class FaultParameters:
    """What can be said about any fault.

    Attributes:
        after_seconds: Engine time from the start of the engine until the fault begins.
        for_seconds: Engine time until it ends; 0: never.
        seed: Of what it draws.
    """

    after_seconds: float = 0.0
    for_seconds: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("after_seconds", "for_seconds"):
            self.need(name, getattr(self, name) >= 0, "0 or more")

    def need(self, name: str, is_met: bool, accepted: str) -> None:
        """Raise ConfigError for a value that cannot be used."""
        if not is_met:
            raise ConfigError(
                f"fault parameter {name}", found=getattr(self, name), accepted=accepted
            )


class Fault(NoFaults):
    """One fault. It is loud: a line when the engine starts with it, and lines as it acts."""

    def __init__(
        self,
        name: str,
        setup: FaultSetup,
        parameters: FaultParameters,
        *,
        now_seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self.setup = setup
        self.random = random.Random(parameters.seed)
        self.began_ns = setup.clock.now_ns() + int(parameters.after_seconds * 1e9)
        self.ends_ns: int | None = None
        if parameters.for_seconds:
            self.ends_ns = self.began_ns + int(parameters.for_seconds * 1e9)
        self._now_seconds = now_seconds
        self._quiet_until = 0.0
        self._quiet_seconds = FIRST_QUIET_SECONDS
        self._num_unsaid = 0
        _log.warning("FAULT %s is on: %s", name, _in_words(parameters))

    @property
    def acts_now(self) -> bool:
        """Whether it has begun and not ended."""
        now_ns = self.setup.clock.now_ns()
        return self.began_ns <= now_ns and (self.ends_ns is None or now_ns < self.ends_ns)

    def state(self, words: str, **facts: object) -> None:
        """Say what was just done, rarer the longer it goes on, and write down the truth of it."""
        if self.setup.truth is not None:
            now = {"t_ns": self.setup.clock.now_ns(), "wall_ns": self.setup.wall_clock()}
            self.setup.truth.add({"fault": self.name, **now, **facts})
        now_seconds = self._now_seconds()
        if now_seconds < self._quiet_until:
            self._num_unsaid += 1
            return
        more = f" (and {self._num_unsaid} acts before that were not said)" * (self._num_unsaid > 0)
        _log.warning("FAULT %s: %s%s", self.name, words, more)
        self._quiet_until = now_seconds + self._quiet_seconds
        self._quiet_seconds = min(2 * self._quiet_seconds, MOST_QUIET_SECONDS)
        self._num_unsaid = 0


def _in_words(parameters: FaultParameters) -> str:
    return ", ".join(f"{name}={value}" for name, value in asdict(parameters).items())
