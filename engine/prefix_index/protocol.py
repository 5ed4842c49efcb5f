"""What the scheduler asks of an index of kept content, whatever it is made of.

A sequence always computes at least its last token: a hit therefore ends before the block that holds
it, and that whole block is computed anew into a block of the sequence's own. Shared blocks are full
and never written.

Content is the same only where tokens, position, mask, window, adapter and tenant are the same: a
block's identity covers its tokens and all before them, under the salt of the rest
(`content_scope`).
"""

from typing import NamedTuple, Protocol

from engine.prefix_index.lookup_meter import IndexMeters
from engine.sequence import Sequence


class PrefixHit(NamedTuple):
    """What is kept of a sequence's beginning.

    Attributes:
        block_ids: The blocks that hold it, in table order; null where no KV group needs one.
        hashes: Identities of its full blocks, those found and at least the first that was not:
            unless one of them changes its state, the hit stays as it is.
        num_active: How many of the blocks somebody counts on.
    """

    block_ids: list[int]
    hashes: list[int]
    num_active: int


class PrefixIndex(Protocol):
    """An index of kept content, asked and fed sequence by sequence.

    Attributes:
        meters: How often it was asked and fed, and what that took.
    """

    @property
    def meters(self) -> IndexMeters:
        """Return the meters of its calls."""

    @property
    def enabled(self) -> bool:
        """Return whether content is kept at all."""

    def identify_prompt(self, seq: Sequence) -> None:
        """Give the full prompt blocks of a sequence that just arrived their hashes."""

    def lookup(self, seq: Sequence) -> PrefixHit:
        """Return the longest kept beginning, short of the block with the last token."""

    def begin(self, seq: Sequence, num_hit_blocks: int) -> None:
        """Start to offer the blocks after a hit, as they fill."""

    def offer(self, seq: Sequence) -> None:
        """Keep the blocks that a step just filled; call when `next_hash_at` is reached.

        The entries of the sequence's table may change, to blocks with the same content.
        """
