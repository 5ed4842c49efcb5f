"""Make room for what a sequence writes next: a new block, or a copy of a shared one."""

from typing import TYPE_CHECKING

from engine.block_pool import BlockPool
from engine.pool_results import AllocationRefusal
from engine.runner import BlockMove, MoveKind, StepPlan
from engine.sequence import Sequence

if TYPE_CHECKING:
    from kvpulse.recorder import Recorder


class TableGrowth:
    """Grows tables, and copies a shared block before somebody writes into it."""

    def __init__(self, pool: BlockPool, *, recorder: "Recorder | None" = None) -> None:
        self.num_copied = 0
        self._pool = pool
        self._recorder = recorder

    def reach(self, seq: Sequence, num_new: int, plan: StepPlan) -> AllocationRefusal | None:
        """Let `seq` write its next `num_new` tokens; a refusal leaves everything as it was.

        Blocks that the table lacks are allocated. A block that would be written while others count
        on it too is copied first (the copy is added to the plan); its last holder writes in place.
        """
        table = seq.block_table.block_ids
        shared, lacking = self._unfit(seq, num_new)
        if not shared and not lacking:
            seq.shares_tail = False  # its last holder
            return None
        answer = self._pool.allocate(seq.seq_id, lacking + len(shared), seq.tenant)
        if isinstance(answer, AllocationRefusal):
            return answer
        if shared:
            self._copy(seq, shared, answer[: len(shared)], plan)
        table += answer[len(shared) :]
        seq.num_slots = seq.block_table.num_slots
        seq.shares_tail = False
        return None

    def num_needed(self, seq: Sequence, num_new: int) -> int:
        """Return how many blocks `reach` would allocate."""
        shared, lacking = self._unfit(seq, num_new)
        return len(shared) + lacking

    def _unfit(self, seq: Sequence, num_new: int) -> tuple[list[int], int]:
        """Return the places of the shared blocks to be written, and how many blocks are lacking."""
        table, counts = seq.block_table.block_ids, self._pool.counts
        size, groups = seq.block_table.block_size, seq.block_table.num_groups
        first = seq.num_computed_tokens // size * groups
        end = ((seq.num_computed_tokens + num_new - 1) // size + 1) * groups
        shared = [i for i in range(first, min(end, len(table))) if counts[table[i]] > 1]
        return shared, max(end - len(table), 0)

    def _copy(self, seq: Sequence, shared: list[int], targets: list[int], plan: StepPlan) -> None:
        """Put fresh blocks in the places of shared ones, and give up the reference on those."""
        table = seq.block_table.block_ids
        sources = [table[index] for index in shared]
        for index, source, target in zip(shared, sources, targets, strict=True):
            plan.block_moves.append(BlockMove(MoveKind.COPY, source, target))
            table[index] = target
        if self._recorder is not None:
            pairs = [block for pair in zip(sources, targets, strict=True) for block in pair]
            self._recorder.copy_on_write(seq.seq_id, pairs, seq.tenant)
        self.num_copied += len(shared)
        self._pool.free(seq.seq_id, sources, seq.tenant)
