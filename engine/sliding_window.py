"""Give blocks back once they lie wholly behind a model's attention window.

Position p attends to positions above p - window. What the next token does not see, no later one
does: its blocks are freed and their table entries become NULL_BLOCK.
"""

from engine.block_pool import BlockPool
from engine.block_table import NULL_BLOCK
from engine.sequence import Sequence
from engine.table_span import TableSpan


class SlidingWindow:
    """Slides the tables of sequences along, for a model with one window in all layers."""

    def __init__(self, span: TableSpan, pool: BlockPool) -> None:
        self._span = span
        self._pool = pool

    @classmethod
    def of(cls, span: TableSpan, pool: BlockPool) -> "SlidingWindow | None":
        """Return what slides the tables; None where nothing ever lies behind a window."""
        return None if span.window is None else cls(span, pool)

    def slide(self, seq: Sequence) -> None:
        """Free what lies behind the window of the token that `seq` computes next."""
        table = seq.block_table
        start, end = table.num_null, min(self._span.first(seq.num_computed_tokens), len(table))
        if start >= end:
            return
        dropped = table.block_ids[start:end]
        table.block_ids[start:end] = [NULL_BLOCK] * (end - start)
        table.num_null = end
        self._pool.free(seq.seq_id, dropped, seq.tenant, seq.tier)
