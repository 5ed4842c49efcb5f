"""Move block contents as a step's plan says, in the order in which it was decided."""

from collections.abc import Sequence
from typing import Protocol

from engine.runner import BlockMove, MoveKind


class MovesBlocks(Protocol):
    """KV memory, as far as moving whole blocks goes."""

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy blocks [source, target] as if all at once."""


def apply_moves(kv: MovesBlocks, moves: Sequence[BlockMove]) -> None:
    """Run the moves in order; neighbours that do not meet run as one batch."""
    batch: list[tuple[int, int]] = []
    touched: set[int] = set()
    for kind, source, target in moves:
        assert kind is MoveKind.COPY, kind
        if source in touched or target in touched:
            kv.copy_blocks(batch)
            batch, touched = [], set()
        batch.append((source, target))
        touched.add(target)
    kv.copy_blocks(batch)
