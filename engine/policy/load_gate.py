"""Refuse new requests while the pool is nearly full: high and low watermark, with hysteresis."""

from engine.block_pool import BlockPool
from engine.policy.scheduling_policy import SchedulingPolicy

LOW_OF_HIGH = 0.9


class LoadGate:
    """Closes above the high watermark, opens again below the low one; without one always open."""

    def __init__(self, policy: SchedulingPolicy, pool: BlockPool) -> None:
        high, low = policy.high_watermark_ratio, policy.low_watermark_ratio
        self._high_ratio = high
        self._low_ratio = low if low is not None else LOW_OF_HIGH * (high or 0.0)
        self._pool = pool
        self._closed = False

    @property
    def high_blocks(self) -> int:
        """Return the active blocks above which the gate closes."""
        return int((self._high_ratio or 0.0) * self._pool.total_blocks)

    def look(self) -> bool:
        """Look at the pool; return whether new requests are refused from now on."""
        if self._high_ratio is None:
            return False
        active, total = self._pool.num_active, self._pool.total_blocks
        if self._closed:
            self._closed = active >= self._low_ratio * total and active > 0
        else:
            self._closed = active > self._high_ratio * total
        return self._closed
