"""A sequence's blocks, in token order.

Token t lies in slot t % block_size of the block at t // block_size in the table. With several KV
groups (`engine.table_span`) each such place is as many neighbouring entries, one for each group.
"""

from typing import Final

NULL_BLOCK: Final = -1  # a table entry whose block slid out of the window and was given back


class BlockTable:
    """The blocks of one sequence; the pool alone changes what they mean.

    Attributes:
        num_groups: KV groups, each with a table of its own: entry i is one of group i % num_groups.
        num_null: Entries that are NULL_BLOCK; all others are blocks that it holds.
    """

    __slots__ = ("block_ids", "block_size", "num_groups", "num_null")

    def __init__(self, block_size: int, num_groups: int = 1) -> None:
        self.block_size = block_size
        self.num_groups = num_groups
        self.block_ids: list[int] = []
        self.num_null = 0

    def __len__(self) -> int:
        return len(self.block_ids)

    @property
    def num_slots(self) -> int:
        """Return how many tokens fit into the blocks held now."""
        return len(self.block_ids) // self.num_groups * self.block_size

    @property
    def held_ids(self) -> list[int]:
        """Return the blocks held, in token order; a copy where there are null entries."""
        return held_of(self.block_ids) if self.num_null else self.block_ids

    def give_up(self) -> list[int]:
        """Empty the table; return the blocks it held, in token order."""
        held = self.held_ids
        self.block_ids, self.num_null = [], 0
        return held

    def slot_of(self, position: int, group: int = 0) -> int:
        """Return the physical slot of a token in a group: block id x block size + offset."""
        block_id = self.block_ids[position // self.block_size * self.num_groups + group]
        return block_id * self.block_size + position % self.block_size


def held_of(entries: list[int]) -> list[int]:
    """Return the blocks among table entries, without the null ones."""
    return [block_id for block_id in entries if block_id != NULL_BLOCK]


def blocks_for(num_tokens: int, block_size: int) -> int:
    """Return how many blocks hold `num_tokens` tokens."""
    return -(-num_tokens // block_size)
