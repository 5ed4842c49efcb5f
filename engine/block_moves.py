"""Move block contents as a step's plan says, in the order in which it was decided."""

from collections.abc import Sequence
from typing import Protocol

from engine.runner import BlockMove, MoveKind

Pairs = Sequence[tuple[int, int]]


class MovesBlocks(Protocol):
    """KV memory, as far as moving whole blocks goes; each moves its pairs as if all at once."""

    def copy_blocks(self, pairs: Pairs) -> None:
        """Copy blocks [source, target] within the device."""

    def swap_out(self, pairs: Pairs) -> None:
        """Copy blocks [device source, host target]."""

    def swap_in(self, pairs: Pairs) -> None:
        """Copy blocks [host source, device target]."""


def apply_moves(kv: MovesBlocks, moves: Sequence[BlockMove]) -> None:
    """Run the moves in order; neighbours of one kind that do not meet run as one batch.

    Moves meet where the later one writes what the earlier one reads or writes, or reads what it
    writes. Between two memories only the targets can meet.
    """
    batch: list[tuple[int, int]] = []
    kind: MoveKind | None = None
    read: set[int] = set()
    written: set[int] = set()
    for move in moves:
        meets = move.target in written
        if move.kind is MoveKind.COPY:
            meets = meets or move.target in read or move.source in written
        if batch and (meets or move.kind is not kind):
            _run(kv, kind, batch)
            batch, read, written = [], set(), set()
        kind = move.kind
        batch.append((move.source, move.target))
        read.add(move.source)
        written.add(move.target)
    if batch:
        _run(kv, kind, batch)


def _run(kv: MovesBlocks, kind: MoveKind | None, pairs: Pairs) -> None:
    if kind is MoveKind.COPY:
        kv.copy_blocks(pairs)
    elif kind is MoveKind.SWAP_OUT:
        kv.swap_out(pairs)
    else:
        kv.swap_in(pairs)
