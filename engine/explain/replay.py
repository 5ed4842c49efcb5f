"""One replay: requests through the simulated engine, and the time to first token of each."""

from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from engine.admission import Admission
from engine.clock import VirtualClock
from engine.engine_loop import Engine
from engine.explain.settings import EngineSettings
from engine.simulation.cost_model import CostModel
from engine.simulation.simulated_run import Simulation
from engine.simulation.simulated_runner import SimulatedRunner
from engine.simulation.trace_requests import TimedRequest
from engine.token_event import TokenEvent

SEED: Final = 20_261_201  # the same in every replay: what they share cannot tell them apart
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class FirstTokenTimes:
    """Requests that had a first token.

    Attributes:
        arrived_ns: [num_requests].
        ttft_ns: [num_requests].
    """

    arrived_ns: Ints
    ttft_ns: Ints


def replay(
    requests: Seq[TimedRequest], cost: CostModel, settings: EngineSettings
) -> FirstTokenTimes:
    """Run requests through an engine without recording; the same ones give the same times."""
    clock = VirtualClock()
    runner = SimulatedRunner(clock, cost=cost, sliding_window=settings.sliding_window, seed=SEED)
    engine = Engine(settings.config, runner, clock=clock)
    watch = _Watch(clock)
    Simulation(engine, clock, requests, watcher=watch).run(lambda _: watch.is_waiting(requests))
    engine.close()
    return watch.times()


class _Watch:
    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._waiting: dict[int, tuple[int, int]] = {}
        self._arrived: list[int] = []
        self._ttft: list[int] = []
        self._num_submitted = 0

    def submitted(self, timed: TimedRequest, admission: Admission) -> None:
        """Wait for its first token from now on."""
        self._num_submitted += 1
        if admission.accepted:
            self._waiting[admission.seq_id] = (timed.at_ns, self._clock.now_ns())

    def stepped(self, events: list[TokenEvent]) -> None:
        """Take note of first tokens."""
        if not self._waiting:
            return
        for event in events:
            begun = self._waiting.pop(event.root or event.seq_id, None)
            if begun is not None:
                self._arrived.append(begun[0])
                self._ttft.append(self._clock.now_ns() - begun[1])

    def is_waiting(self, requests: Seq[TimedRequest]) -> bool:
        """Say whether there are first tokens to come."""
        return self._num_submitted < len(requests) or bool(self._waiting)

    def times(self) -> FirstTokenTimes:
        """Return what was noted."""
        return FirstTokenTimes(np.array(self._arrived, np.int64), np.array(self._ttft, np.int64))
