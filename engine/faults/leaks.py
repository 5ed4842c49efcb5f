"""Ended sequences that do not give all their blocks back."""

from collections.abc import Sequence
from dataclasses import dataclass

from engine.faults.fault import Fault, FaultParameters
from engine.faults.setup import FaultSetup
from kvpulse.events import FinishReason


@dataclass(frozen=True, slots=True)
class LeakOnCancelParameters(FaultParameters):
    """Which cancelled sequences leak.

    Attributes:
        every: Each so-manieth of those that hold blocks.
    """

    every: int = 1

    def __post_init__(self) -> None:
        FaultParameters.__post_init__(self)
        self.need("every", self.every >= 1, "1 or more")


class LeakOnCancel(Fault):
    """Cancelled sequences keep their blocks."""

    def __init__(self, setup: FaultSetup, parameters: LeakOnCancelParameters) -> None:
        super().__init__("leak_on_cancel", setup, parameters)
        self._every = parameters.every
        self._num_cancelled = 0

    def kept_at_end(self, seq_id: int, block_ids: Sequence[int], reason: FinishReason) -> list[int]:
        """Keep all blocks of a cancelled sequence."""
        kept = held(block_ids)
        if reason is not FinishReason.CANCELLED or not kept or not self.acts_now:
            return []
        self._num_cancelled += 1
        if self._num_cancelled % self._every:
            return []
        self.state(
            f"sequence {seq_id} was cancelled and keeps {len(kept)} blocks: {kept}",
            owner=seq_id,
            blocks=kept,
        )
        return kept


@dataclass(frozen=True, slots=True)
class LeakSlowParameters(FaultParameters):
    """How slowly.

    Attributes:
        every: Each so-manieth ended sequence leaks.
        most_blocks: It loses 1 to so many blocks.
    """

    every: int = 20
    most_blocks: int = 2

    def __post_init__(self) -> None:
        FaultParameters.__post_init__(self)
        self.need("every", self.every >= 1, "1 or more")
        self.need("most_blocks", self.most_blocks >= 1, "1 or more")


class LeakSlow(Fault):
    """Now and then an ended sequence loses a block or two, however it ended."""

    def __init__(self, setup: FaultSetup, parameters: LeakSlowParameters) -> None:
        super().__init__("leak_slow", setup, parameters)
        self._every = parameters.every
        self._most_blocks = parameters.most_blocks
        self._num_ended = 0

    def kept_at_end(self, seq_id: int, block_ids: Sequence[int], reason: FinishReason) -> list[int]:
        """Keep a few blocks of each so-manieth sequence that held any."""
        mine = held(block_ids)
        if not mine or not self.acts_now:
            return []
        self._num_ended += 1
        if self._num_ended % self._every:
            return []
        num_kept = min(len(mine), self.random.randint(1, self._most_blocks))
        kept = self.random.sample(mine, num_kept)
        self.state(f"sequence {seq_id} ended and keeps {kept}", owner=seq_id, blocks=kept)
        return kept


def held(block_ids: Sequence[int]) -> list[int]:
    """Return the blocks of a table without the entries that stand for none."""
    return [block_id for block_id in block_ids if block_id >= 0]
