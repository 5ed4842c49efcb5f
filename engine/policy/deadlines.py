"""Which sequences run out of time, in the queue or altogether."""

import heapq
from typing import NamedTuple

from engine.policy.scheduling_policy import SchedulingPolicy
from engine.sequence import Sequence


class Deadline(NamedTuple):
    """A moment at which a sequence ends, unless it has ended, or has run if `in_queue`."""

    at_ns: int
    root_id: int
    in_queue: bool


class Deadlines:
    """The deadlines of requests, the next one first."""

    def __init__(self, policy: SchedulingPolicy) -> None:
        self._policy = policy
        self._heap: list[Deadline] = []

    def add(self, seq: Sequence) -> None:
        """Take in a request that arrived: its own deadlines, and those of the policy."""
        arrived_ns, policy, request = seq.arrived_ns, self._policy, seq.request
        seq.deadline_ns = _earlier(request.deadline_ns, arrived_ns, policy.total_timeout_ns)
        seq.queue_deadline_ns = _earlier(
            request.queue_deadline_ns, arrived_ns, policy.queue_timeout_ns
        )
        if seq.deadline_ns:
            heapq.heappush(self._heap, Deadline(seq.deadline_ns, seq.root_id, False))
        if seq.queue_deadline_ns:
            heapq.heappush(self._heap, Deadline(seq.queue_deadline_ns, seq.root_id, True))

    @property
    def next_ns(self) -> int | None:
        """Return when the next one is due, None without any."""
        return self._heap[0].at_ns if self._heap else None

    def due(self, now_ns: int) -> list[Deadline]:
        """Take out and return what is due."""
        found = []
        while self._heap and self._heap[0].at_ns <= now_ns:
            found.append(heapq.heappop(self._heap))
        return found


def _earlier(asked_ns: int, arrived_ns: int, timeout_ns: int) -> int:
    """Return the earlier of a request's own deadline and the policy's; 0 is none."""
    latest_ns = arrived_ns + timeout_ns if timeout_ns else 0
    return min(asked_ns, latest_ns) if asked_ns and latest_ns else asked_ns or latest_ns
