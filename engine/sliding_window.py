"""Give blocks back once they lie wholly behind a model's attention window.

Position p attends to positions above p - window. What the next token does not see, no later one
does: its blocks are freed and their table entries become NULL_BLOCK.
"""

from engine.block_pool import BlockPool
from engine.block_table import NULL_BLOCK
from engine.sequence import Sequence


class SlidingWindow:
    """Slides the tables of sequences along, for a model with one window in all layers."""

    def __init__(self, window: int, pool: BlockPool) -> None:
        """`window` is the positions that a token sees, itself among them."""
        self._window = window
        self._pool = pool

    def slide(self, seq: Sequence) -> None:
        """Free what lies behind the window of the token that `seq` computes next."""
        table = seq.block_table
        num_behind = max(seq.num_computed_tokens + 1 - self._window, 0) // table.block_size
        start, end = table.num_null, min(num_behind, len(table))
        if start >= end:
            return
        dropped = table.block_ids[start:end]
        table.block_ids[start:end] = [NULL_BLOCK] * (end - start)
        table.num_null = end
        self._pool.free(seq.seq_id, dropped, seq.tenant, seq.tier)
