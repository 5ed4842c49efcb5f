"""Ended sequences that give a block back twice."""

from collections.abc import Sequence
from dataclasses import dataclass

from engine.faults.fault import Fault, FaultParameters
from engine.faults.setup import FaultSetup
from kvpulse.events import FinishReason


@dataclass(frozen=True, slots=True)
class DoubleFreeParameters(FaultParameters):
    """How often.

    Attributes:
        every: Each so-manieth sequence that ended and left blocks unused.
        most_blocks: 1 to so many of them are freed again.
    """

    every: int = 10
    most_blocks: int = 2

    def __post_init__(self) -> None:
        FaultParameters.__post_init__(self)
        self.need("every", self.every >= 1, "1 or more")
        self.need("most_blocks", self.most_blocks >= 1, "1 or more")


class DoubleFree(Fault):
    """Some ended sequences free blocks again that nobody holds any more; the pool refuses."""

    def __init__(self, setup: FaultSetup, parameters: DoubleFreeParameters) -> None:
        super().__init__("double_free", setup, parameters)
        self._every = parameters.every
        self._most_blocks = parameters.most_blocks
        self._num_ended = 0

    def freed_twice(self, seq_id: int, block_ids: Sequence[int], reason: FinishReason) -> list[int]:
        """Free a few of them once more."""
        if not block_ids or not self.acts_now:
            return []
        self._num_ended += 1
        if self._num_ended % self._every:
            return []
        num_again = min(len(block_ids), self.random.randint(1, self._most_blocks))
        again = self.random.sample(list(block_ids), num_again)
        self.state(f"sequence {seq_id} frees {again} again", owner=seq_id, blocks=again)
        return again
