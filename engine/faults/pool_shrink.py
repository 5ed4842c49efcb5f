"""Blocks that go out of service: another tenant of the card took memory."""

from dataclasses import dataclass

from engine.faults.fault import Fault, FaultParameters
from engine.faults.setup import FaultSetup


@dataclass(frozen=True, slots=True)
class PoolShrinkParameters(FaultParameters):
    """How far the pool shrinks.

    Attributes:
        blocks: So many blocks go; 0: `ratio` says how many.
        ratio: Part of the pool that goes.
    """

    after_seconds: float = 5.0
    blocks: int = 0
    ratio: float = 0.5

    def __post_init__(self) -> None:
        FaultParameters.__post_init__(self)
        self.need("blocks", self.blocks >= 0, "0 or more")
        self.need("ratio", 0 < self.ratio < 1, "above 0 and below 1")


class PoolShrink(Fault):
    """The pool goes from n blocks to m. Blocks in use go as soon as they are given back."""

    def __init__(self, setup: FaultSetup, parameters: PoolShrinkParameters) -> None:
        super().__init__("pool_shrink", setup, parameters)
        self._full = setup.config.total_blocks
        num_to_go = parameters.blocks or max(1, round(self._full * parameters.ratio))
        parameters.need("blocks", num_to_go < self._full, f"below the pool's {self._full}")
        self._small = self._full - num_to_go
        self._last_total = self._full

    def blocks_to_withdraw(self, free: int, total: int) -> int:
        """Ask for what is still to go, or to come back."""
        if total != self._last_total:
            self.state(
                f"the pool went from {self._last_total} to {total} blocks",
                total_before=self._last_total,
                total_after=total,
            )
            self._last_total = total
        wanted = self._small if self.acts_now else self._full
        return min(total - wanted, free)
