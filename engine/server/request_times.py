"""The times that belong to a request over HTTP: when it came, and how long it may take."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from engine.request import Request


@dataclass(frozen=True, slots=True)
class RequestTimes:
    """When a request came, and its limits, which count from there.

    Attributes:
        accepted_ns: The machine's monotonic clock at its first byte.
        timeout_ns: In all; 0 for none.
        queue_timeout_ns: Until it first runs; 0 for none.
    """

    accepted_ns: int
    timeout_ns: int = 0
    queue_timeout_ns: int = 0

    def apply(
        self,
        request: Request,
        *,
        engine_ns: int,
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> Request:
        """Return the request as the engine takes it at this moment.

        Args:
            engine_ns: The engine's clock, which may be another than the machine's.
        """
        frontend_ns = max(now_ns() - self.accepted_ns, 0)
        began_ns = engine_ns - frontend_ns
        return replace(
            request,
            frontend_ns=frontend_ns,
            deadline_ns=_deadline(began_ns, self.timeout_ns),
            queue_deadline_ns=_deadline(began_ns, self.queue_timeout_ns),
        )


def _deadline(began_ns: int, limit_ns: int) -> int:
    # A deadline of 0 would be none, and the journal holds no negative time.
    return max(began_ns + limit_ns, 1) if limit_ns else 0
