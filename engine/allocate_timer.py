"""How long the pool takes to allocate: one call between two accounts is timed, the others are not.

Timing each call would cost a tenth of what recording it costs. So a call is timed by standing in
for the pool's method once, and is out of the way again when it returns: measured, an untimed call
then costs what it did (`__dict__` would slow down every attribute of the pool, once touched).
"""

import time
from collections.abc import Callable

from engine.block_pool import BlockPool
from engine.clock import Clock, SystemClock
from engine.pool_results import AllocationRefusal


def timer_for(pool: BlockPool, clock: Clock) -> "AllocateTimer | None":
    """Return a timer for an engine on the machine's clock; during a call, virtual time stands."""
    return AllocateTimer(pool, time.perf_counter_ns) if isinstance(clock, SystemClock) else None


class AllocateTimer:
    """Times the next call of a pool's `allocate` that gets blocks, whenever it is told to."""

    def __init__(self, pool: BlockPool, read_ns: Callable[[], int]) -> None:
        self._pool = pool
        self._read_ns = read_ns
        self._took_ns: int | None = None

    def take(self) -> int | None:
        """Return how long the call timed since the last `take` took, and time another."""
        took_ns, self._took_ns = self._took_ns, None
        self._pool.allocate = self._timed  # type: ignore[method-assign]
        return took_ns

    def _timed(self, owner: int, n: int, tenant: int = 0) -> list[int] | AllocationRefusal:
        allocate = type(self._pool).allocate
        begun_ns = self._read_ns()
        answer = allocate(self._pool, owner, n, tenant)
        took_ns = self._read_ns() - begun_ns
        if not isinstance(answer, AllocationRefusal):
            self._took_ns = took_ns
            del self._pool.allocate
        return answer
