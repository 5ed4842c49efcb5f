"""What an engine states of its KV groups: how many blocks a number of tokens takes in all of them.

A model whose layers have windows in part, or all of them, keeps them in groups with blocks of their
own (docs/engine.md, "Blocks"). An engine that says nothing has one group, without a window.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

MOST_GROUPS: Final = 1024  # more than any model has layers: nothing stated is taken on trust
MOST_BLOCKS: Final = 1 << 32


@dataclass(frozen=True, slots=True)
class StatedGroups:
    """The groups of one engine.

    Attributes:
        total: How many there are.
        windowed: How many of them have a window.
        most_windowed_blocks: What a sequence holds of all those together, at the most.
    """

    total: int = 1
    windowed: int = 0
    most_windowed_blocks: int = 0

    @classmethod
    def read(cls, config: Mapping[str, object] | None) -> "StatedGroups":
        """Read what the engine stated, or nothing of it where any of it is impossible."""
        stated = config or {}
        total, windowed = stated.get("kv_groups"), stated.get("windowed_kv_groups")
        most = stated.get("most_windowed_blocks")
        if not isinstance(total, int) or not isinstance(windowed, int) or not isinstance(most, int):
            return cls()
        if not 0 <= windowed <= total <= MOST_GROUPS or not total or not 0 <= most <= MOST_BLOCKS:
            return cls()
        return cls(total, windowed, most)

    def most_blocks(self, prompt: int | None, output: int | None, block_size: int) -> int:
        """Return how many blocks so many tokens hold at the most; 0 where they are not known."""
        if prompt is None or output is None:
            return 0
        stretches = -(-(prompt + output) // block_size)
        under_windows = min(self.windowed * stretches, self.most_windowed_blocks)
        return (self.total - self.windowed) * stretches + under_windows

    def bytes_per_block(self, bytes_per_token: object, block_size: int) -> float | None:
        """Return what one block weighs, where the engine states what a token of all groups does."""
        if not isinstance(bytes_per_token, int | float) or bytes_per_token <= 0:
            return None
        return bytes_per_token * block_size / self.total
