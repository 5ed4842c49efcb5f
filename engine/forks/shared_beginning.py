"""What beams share when they come back after a preemption, in a model with a sliding window.

The first of them computes it, and by the time it is done has given back what slid out of its
window. So it stops where the others begin to differ; until then the places that they will share
with it are null in their tables, and then they count on the blocks that it still holds.
"""

from engine.block_pool import BlockPool
from engine.block_table import NULL_BLOCK, held_of
from engine.lineup import group_of
from engine.sequence import Sequence


def shared_tokens(seq: Sequence) -> int:
    """Return how many of its leading tokens a beam shares with the first of its gang."""
    return seq.num_shared_blocks * seq.block_table.block_size


def tokens_until_shared(seq: Sequence) -> int | None:
    """Return what the first of several beams computes before the others join it; None if done."""
    left = shared_tokens(seq) - seq.num_computed_tokens
    group = group_of(seq)
    return left if left > 0 and len(group) > 1 and seq is group[0] else None


def leave_places(seq: Sequence) -> None:
    """Let the table of a beam that just came back begin with what it will share, all null."""
    table = seq.block_table
    table.block_ids = [NULL_BLOCK] * (seq.num_shared_blocks * table.num_groups)
    table.num_null = len(table.block_ids)


def join(seq: Sequence, first: Sequence, pool: BlockPool) -> None:
    """Let a beam count on what the first one has just computed and still holds of it.

    Nothing happens unless both stand there: the first one goes on in the same step.
    """
    table, theirs = seq.block_table, first.block_table
    stand_there = seq.num_computed_tokens == first.num_computed_tokens == shared_tokens(seq)
    if not stand_there or table.num_null == theirs.num_null:
        return
    shared = theirs.block_ids[: seq.num_shared_blocks * table.num_groups]
    pool.share(seq.seq_id, held_of(shared), [], seq.tenant)
    table.block_ids[: len(shared)] = shared
    table.num_null = theirs.num_null
