"""Give blocks back once they lie wholly behind the attention window of their KV group.

Position p attends to positions above p - window. What the next token does not see, no later one
does: its blocks are freed and their table entries become NULL_BLOCK.
"""

from engine.block_pool import BlockPool
from engine.block_table import NULL_BLOCK
from engine.sequence import Sequence
from engine.table_span import TableSpan


class SlidingWindow:
    """Slides the tables of sequences along, for a model with a window in some or all layers."""

    def __init__(self, span: TableSpan, pool: BlockPool) -> None:
        self._span = span
        self._pool = pool

    @classmethod
    def of(cls, span: TableSpan, pool: BlockPool) -> "SlidingWindow | None":
        """Return what slides the tables; None where nothing ever lies behind a window."""
        return cls(span, pool) if span.slides else None

    def slide(self, seq: Sequence) -> None:
        """Free what lies behind the windows of the token that `seq` computes next."""
        span, table = self._span, seq.block_table.block_ids
        if seq.block_table.num_null == span.num_behind(seq.num_computed_tokens):
            return
        dropped: list[int] = []
        for group, window in enumerate(span.windows):
            place = (span.first(window, seq.num_computed_tokens) - 1) * span.num_groups + group
            while place >= 0 and table[place] != NULL_BLOCK:
                dropped.append(table[place])
                table[place] = NULL_BLOCK
                place -= span.num_groups
        dropped.reverse()
        seq.block_table.num_null += len(dropped)
        self._pool.free(seq.seq_id, dropped, seq.tenant, seq.tier)
