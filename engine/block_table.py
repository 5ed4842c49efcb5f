"""A sequence's blocks, in token order.

Token t lies in slot t % block_size of the block at t // block_size in the table.
"""

from typing import Final

NULL_BLOCK: Final = -1  # a table entry whose block slid out of the window and was given back


class BlockTable:
    """The blocks of one sequence; the pool alone changes what they mean.

    Attributes:
        num_null: Leading entries that are NULL_BLOCK; all others are blocks that it holds.
    """

    __slots__ = ("block_ids", "block_size", "num_null")

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self.block_ids: list[int] = []
        self.num_null = 0

    def __len__(self) -> int:
        return len(self.block_ids)

    @property
    def num_slots(self) -> int:
        """Return how many tokens fit into the blocks held now."""
        return len(self.block_ids) * self.block_size

    @property
    def held_ids(self) -> list[int]:
        """Return the blocks held, in token order; a copy where there are null entries."""
        return self.block_ids[self.num_null :] if self.num_null else self.block_ids

    def give_up(self) -> list[int]:
        """Empty the table; return the blocks it held, in token order."""
        held = self.block_ids[self.num_null :] if self.num_null else self.block_ids
        self.block_ids, self.num_null = [], 0
        return held

    def slot_of(self, position: int) -> int:
        """Return the physical slot of the token at `position`: block id x block size + offset."""
        block_id = self.block_ids[position // self.block_size]
        return block_id * self.block_size + position % self.block_size


def blocks_for(num_tokens: int, block_size: int) -> int:
    """Return how many blocks hold `num_tokens` tokens."""
    return -(-num_tokens // block_size)
