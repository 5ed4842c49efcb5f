"""Drive a simulated engine through timed requests."""

import heapq
from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace
from typing import Final, Protocol

from engine.admission import Admission
from engine.clock import VirtualClock
from engine.engine_loop import Engine
from engine.faults.protocol import FaultInjector, NoFaults
from engine.request import Request
from engine.simulation.trace_requests import TimedRequest
from engine.token_event import TokenEvent

STUCK_NS: Final = 10_000_000  # how long to wait before a pass that ran nothing is tried again
GIVE_UP_NS: Final = 120 * 10**9  # after the last request, when nothing has run for so long
STEPS_BETWEEN_LOOKS: Final = 128


@dataclass(slots=True)
class Progress:
    """How far a simulation got."""

    now_ns: int = 0
    num_submitted: int = 0
    num_requests: int = 0


class SimulationWatcher(Protocol):
    """Is told what a simulation does, as it does it."""

    def submitted(self, timed: TimedRequest, admission: Admission) -> None:
        """Take note of a request that the engine was given, and of what it said."""

    def stepped(self, events: list[TokenEvent]) -> None:
        """Take note of a step's tokens."""


class Simulation:
    """Submits requests when they are due, cancels those whose clients leave, and steps between.

    It stands for the server too, where a fault holds requests before the engine has them. It is
    over when its own requests have ended, whatever a fault has submitted; or when nothing has run
    for two minutes although something waits, which takes a fault to happen.
    """

    def __init__(
        self,
        engine: Engine,
        clock: VirtualClock,
        requests: Seq[TimedRequest],
        *,
        faults: FaultInjector | None = None,
        watcher: SimulationWatcher | None = None,
    ) -> None:
        self.engine = engine
        self._clock = clock
        self._requests = requests
        self._next = 0
        self._started_ns = clock.now_ns()
        self._cancels: list[tuple[int, int]] = []
        self._faults = faults or NoFaults()
        self._watcher = watcher
        self._held: list[tuple[int, int, TimedRequest]] = []  # until when, which, by a fault
        self._mine: list[int] = []
        self._ran_ns = self._started_ns

    @property
    def done(self) -> bool:
        """Return whether all requests came and ended."""
        if self._next < len(self._requests) or self._held:
            return False
        if not self.engine.has_work:
            return True
        while self._mine and not self.engine.is_live(self._mine[-1]):
            self._mine.pop()
        return not self._mine or self._clock.now_ns() - self._ran_ns > GIVE_UP_NS

    def run(self, keep_on: Callable[[Progress], bool]) -> None:
        """Go on until all is done, or `keep_on` says no; it is asked every 128 steps or so."""
        countdown = 0
        while not self.done:
            if countdown == 0:
                countdown = STEPS_BETWEEN_LOOKS
                if not keep_on(self._progress()):
                    return
            countdown -= 1
            self._submit_due()
            if self.engine.has_work:
                events = self.engine.step()
                if self._watcher is not None:
                    self._watcher.stepped(events)
                if not self.engine.idle:
                    self._ran_ns = self._clock.now_ns()
                else:
                    self._clock.advance_to(min(self._next_ns(), self._clock.now_ns() + STUCK_NS))
            else:
                self._clock.advance_to(self._next_ns())
                self.engine.tick()
        keep_on(self._progress())

    def _progress(self) -> Progress:
        now_ns = self._clock.now_ns() - self._started_ns
        return Progress(now_ns, self._next, len(self._requests))

    def _submit_due(self) -> None:
        now_ns = self._clock.now_ns() - self._started_ns
        requests, cancels = self._requests, self._cancels
        while self._next < len(requests) and requests[self._next].at_ns <= now_ns:
            timed = requests[self._next]
            self._next += 1
            delay_ns = int(self._faults.frontend_delay_seconds() * 1e9)
            if delay_ns:
                heapq.heappush(self._held, (timed.at_ns + delay_ns, self._next, timed))
            else:
                self._submit(timed, timed.request)
        while self._held and self._held[0][0] <= now_ns:
            timed = heapq.heappop(self._held)[2]
            self._submit(timed, replace(timed.request, frontend_ns=now_ns - timed.at_ns))
        while cancels and cancels[0][0] <= now_ns:
            self.engine.cancel(heapq.heappop(cancels)[1])

    def _submit(self, timed: TimedRequest, request: Request) -> None:
        admission = self.engine.submit(request)
        if self._watcher is not None:
            self._watcher.submitted(timed, admission)
        if not admission.accepted:
            return
        self._mine.append(admission.seq_id)
        if timed.cancel_at_ns:
            heapq.heappush(self._cancels, (timed.cancel_at_ns, admission.seq_id))

    def _next_ns(self) -> int:
        """Return when something happens next by itself: an arrival, a cancel, a report."""
        times = [self.engine.next_report_ns]
        if self._next < len(self._requests):
            times.append(self._requests[self._next].at_ns + self._started_ns)
        if self._held:
            times.append(self._held[0][0] + self._started_ns)
        if self._cancels:
            times.append(self._cancels[0][0] + self._started_ns)
        return min(times)
