"""Split a sequence off another, or let one take on what another has: by sharing its blocks."""

from typing import TYPE_CHECKING

from engine.block_pool import BlockPool
from engine.block_table import held_of
from engine.scheduler import Scheduler
from engine.sequence import Sequence

if TYPE_CHECKING:
    from kvpulse.recorder import Recorder


class Forking:
    """Forks running sequences. Nothing is copied before somebody writes (see `TableGrowth`).

    Attributes:
        num_tokens_shared: Computed tokens that children began with, over all forks.
    """

    def __init__(
        self, scheduler: Scheduler, pool: BlockPool, *, recorder: "Recorder | None" = None
    ) -> None:
        self.num_tokens_shared = 0
        self._scheduler = scheduler
        self._pool = pool
        self._recorder = recorder

    def split(self, parent: Sequence, sample_index: int) -> Sequence:
        """Return a new sequence that has everything of running `parent`, and runs beside it."""
        child = Sequence(
            self._scheduler.numbers.take(),
            parent.request,
            block_size=parent.block_table.block_size,
            tenant=parent.tenant,
            num_groups=parent.block_table.num_groups,
        )
        child.root_id, child.parent_id = parent.root_id, parent.seq_id
        child.sample_index = sample_index
        child.num_slots_reserved = 1
        child.plain_sampling = not child.sampling.wants_logprobs
        child.max_num_tokens = parent.max_num_tokens
        child.stop_ids, child.stop_at = parent.stop_ids, parent.stop_at
        child.gang = parent.gang
        child.computed_from = parent.num_computed_tokens  # it has computed nothing itself
        child.first_token_ns = parent.first_token_ns
        child.tier, child.priority = parent.tier, parent.priority
        child.rank_ns, child.deadline_ns = parent.rank_ns, parent.deadline_ns
        child.protected_until = parent.protected_until
        if self._recorder is not None:
            self._recorder.fork(child.seq_id, parent.seq_id, child.tenant)
        self._share(child, parent)
        self.num_tokens_shared += parent.num_computed_tokens
        self._scheduler.adopt(child)
        return child

    def take_on(self, seq: Sequence, other: Sequence) -> None:
        """Let `seq` give up what it has and go on from what `other` of its gang has.

        Both are as long as each other. What their tables have in common stays where it is.
        """
        own, table = seq.block_table.block_ids, other.block_table.block_ids
        common = 0
        while common < len(own) and own[common] == table[common]:
            common += 1
        dropped = held_of(own[common:])
        del own[common:]
        if dropped:
            self._pool.free(seq.seq_id, dropped, seq.tenant, seq.tier)
        self._share(seq, other)

    def _share(self, seq: Sequence, other: Sequence) -> None:
        """Give `seq` the tokens of `other`, and a reference on the blocks that it lacks."""
        table, theirs = seq.block_table, other.block_table
        seq.token_ids = other.token_ids.copy()
        seq.num_tokens = other.num_tokens
        seq.num_computed_tokens = other.num_computed_tokens
        missing = theirs.block_ids[len(table) :]
        shared = held_of(missing)
        if shared:
            self._pool.share(seq.seq_id, shared, [], seq.tenant)
        table.block_ids += missing
        table.num_null = theirs.num_null
        seq.num_slots = other.num_slots
        seq.block_hashes = other.block_hashes.copy()
        seq.content_key = other.content_key
        seq.num_hashed_blocks = other.num_hashed_blocks
        seq.next_hash_at = other.next_hash_at
        seq.shares_tail = other.shares_tail = other.num_computed_tokens < other.num_slots
