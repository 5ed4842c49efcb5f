"""Drive a simulated engine through timed requests."""

import heapq
from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Final

from engine.clock import VirtualClock
from engine.engine_loop import Engine
from engine.simulation.trace_requests import TimedRequest

STUCK_NS: Final = 10_000_000  # how long to wait before a pass that ran nothing is tried again
STEPS_BETWEEN_LOOKS: Final = 128


@dataclass(slots=True)
class Progress:
    """How far a simulation got."""

    now_ns: int = 0
    num_submitted: int = 0
    num_requests: int = 0


class Simulation:
    """Submits requests when they are due, cancels those whose clients leave, and steps between."""

    def __init__(self, engine: Engine, clock: VirtualClock, requests: Seq[TimedRequest]) -> None:
        self.engine = engine
        self._clock = clock
        self._requests = requests
        self._next = 0
        self._started_ns = clock.now_ns()
        self._cancels: list[tuple[int, int]] = []

    @property
    def done(self) -> bool:
        """Return whether all requests came and ended."""
        return self._next == len(self._requests) and not self.engine.has_work

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
                self.engine.step()
                if self.engine.idle:
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
            admission = self.engine.submit(timed.request)
            if timed.cancel_at_ns and admission.accepted:
                heapq.heappush(cancels, (timed.cancel_at_ns, admission.seq_id))
        while cancels and cancels[0][0] <= now_ns:
            self.engine.cancel(heapq.heappop(cancels)[1])

    def _next_ns(self) -> int:
        """Return when something happens next by itself: an arrival, a cancel, a report."""
        times = [self.engine.next_report_ns]
        if self._next < len(self._requests):
            times.append(self._requests[self._next].at_ns + self._started_ns)
        if self._cancels:
            times.append(self._cancels[0][0] + self._started_ns)
        return min(times)
