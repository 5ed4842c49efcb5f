"""No index: nothing is kept, nothing is found."""

from engine.prefix_index.lookup_meter import IndexMeters
from engine.prefix_index.protocol import PrefixHit
from engine.sequence import NEVER, Sequence


class NoIndex:
    """The index of an engine without a prefix cache."""

    enabled = False

    def __init__(self) -> None:
        self.meters = IndexMeters()

    def identify_prompt(self, seq: Sequence) -> None:
        """Leave the blocks without an identity."""

    def lookup(self, seq: Sequence) -> PrefixHit:
        """Find nothing."""
        return PrefixHit([], [], 0)

    def begin(self, seq: Sequence, num_hit_blocks: int) -> None:
        """Let no block ever be offered."""
        seq.next_hash_at = NEVER

    def offer(self, seq: Sequence) -> None:
        """Raise, as nothing is ever due."""
        raise AssertionError("without an index nothing is due")
