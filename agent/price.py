"""What a block costs: the price of an engine's GPUs, shared out over its blocks and over time."""

from dataclasses import dataclass
from typing import Final

SECONDS_PER_HOUR: Final = 3600


@dataclass(frozen=True, slots=True)
class Price:
    """The configured price; a block-second costs its share of the whole pool's second."""

    per_gpu_hour: float
    gpus_per_engine: int = 1
    currency: str = "USD"

    def of_block_second(self, total_blocks: int) -> float | None:
        """Return what one block costs for one second; None for a pool without blocks."""
        if total_blocks <= 0:
            return None
        return self.per_gpu_hour * self.gpus_per_engine / SECONDS_PER_HOUR / total_blocks

    def of(self, block_seconds: float | None, total_blocks: int) -> float | None:
        """Return what block-seconds cost; None where they were not measured."""
        each = self.of_block_second(total_blocks)
        return None if block_seconds is None or each is None else block_seconds * each
