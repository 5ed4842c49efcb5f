"""Swap sequences to host memory and back: their blocks' content moves, their tokens stay computed.

Which moves a step makes is put into its plan, in the order of decision; who executes the plan runs
them before anything is computed. So a block that was swapped out may be given to somebody else in
the same pass.
"""

from typing import TYPE_CHECKING, NamedTuple

from engine.block_pool import BlockPool
from engine.block_table import NULL_BLOCK, blocks_for
from engine.pool_results import AllocationRefusal, FreeResult
from engine.prefix_index.protocol import PrefixIndex
from engine.runner import BlockMove, MoveKind, StepPlan
from engine.sequence import Sequence
from engine.table_span import TableSpan
from kvpulse.events import Kind

if TYPE_CHECKING:
    from kvpulse.recorder import Recorder


class SwapResult(NamedTuple):
    """What a swap out did: blocks copied to the host, and what became of the gpu's."""

    num_blocks: int
    freed: FreeResult


class Swapper:
    """Moves sequences between the pool of the gpu and that of the host.

    Attributes:
        num_swapped_out: Blocks copied to the host so far.
        num_swapped_in: Blocks copied back so far.
        num_found: Blocks that came back without a copy, since the gpu had kept their content.
    """

    def __init__(
        self,
        pool: BlockPool,
        host_pool: BlockPool,
        span: TableSpan,
        recorder: "Recorder | None" = None,
        index: PrefixIndex | None = None,
    ) -> None:
        self.num_swapped_out = 0
        self.num_swapped_in = 0
        self.num_found = 0
        self._pool = pool
        self._host_pool = host_pool
        self._span = span
        self._recorder = recorder
        self._index = index

    @property
    def acts(self) -> dict[Kind, int]:
        """Return the copies so far, in blocks per kind of event."""
        return {Kind.SWAP_OUT: self.num_swapped_out, Kind.SWAP_IN: self.num_swapped_in}

    def can_take(self, seq: Sequence) -> bool:
        """Return whether the host has room for all that is computed of a sequence."""
        return len(_filled(seq)) <= self._host_pool.num_available

    def swap_out(self, seq: Sequence, plan: StepPlan) -> SwapResult:
        """Copy a running sequence's blocks to the host and give its gpu blocks up.

        A shared block is copied too, and only the reference on it is dropped. A block that keeps
        content stays cached on the gpu, as always. `can_take` has said yes.
        """
        table, owner, tenant = seq.block_table.block_ids, seq.seq_id, seq.tenant
        filled = _filled(seq)
        sources = [table[index] for index in filled]
        hosts: list[int] = []
        if sources:
            answer = self._host_pool.allocate(owner, len(sources), tenant)
            assert not isinstance(answer, AllocationRefusal), "room was counted before"
            hosts = answer
            self._state(MoveKind.SWAP_OUT, seq, sources, hosts, plan)
        self.num_swapped_out += len(hosts)
        seq.host_block_ids = [NULL_BLOCK] * _num_filled(seq)
        for index, host in zip(filled, hosts, strict=True):
            seq.host_block_ids[index] = host
        freed = self._pool.free(owner, seq.block_table.give_up(), tenant, seq.tier)
        seq.num_slots = 0
        return SwapResult(len(hosts), freed)

    def level(self, seq: Sequence) -> int:
        """Return how many gpu blocks a swapped sequence takes to return, none of them shared."""
        return self._num_entries(seq) - seq.host_block_ids.count(NULL_BLOCK)

    def swap_in(self, seq: Sequence, plan: StepPlan) -> AllocationRefusal | None:
        """Give a swapped sequence its blocks and copy its content back into them.

        What the gpu has kept of its beginning is shared instead of copied. A refusal leaves
        everything as it was.
        """
        pool, hosts, table = self._pool, seq.host_block_ids, seq.block_table.block_ids
        found, num_active = self._kept(seq)
        needed = self.level(seq) - len(found)
        if needed + len(found) - num_active > pool.num_available:
            return AllocationRefusal(
                needed + len(found) - num_active, pool.num_free, pool.num_cached
            )
        if found:
            pool.share(seq.seq_id, found, table, seq.tenant)
        fresh: list[int] = []
        if needed:
            answer = pool.allocate(seq.seq_id, needed, seq.tenant)
            assert not isinstance(answer, AllocationRefusal), "room was counted before"
            fresh = answer
        unused = iter(fresh)
        copied: list[tuple[int, int]] = []
        for host in hosts[len(found) :]:
            block_id = NULL_BLOCK if host == NULL_BLOCK else next(unused)
            table.append(block_id)
            if host != NULL_BLOCK:
                copied.append((host, block_id))
        table.extend(unused)
        if copied:
            sources, targets = zip(*copied, strict=True)
            self._state(MoveKind.SWAP_IN, seq, list(sources), list(targets), plan)
        self.num_swapped_in += len(copied)
        self.num_found += len(found)
        seq.block_table.num_null = hosts.count(NULL_BLOCK)
        self.drop(seq)
        seq.num_slots = seq.block_table.num_slots
        if self._index is not None:
            groups = seq.block_table.num_groups
            slid = seq.block_table.num_null if groups == 1 else 0
            self._index.begin(seq, max(len(found) // groups, slid))
        return None

    def drop(self, seq: Sequence) -> None:
        """Give the host blocks of a sequence back: it returned, or it ended while swapped out."""
        hosts, seq.host_block_ids = seq.host_block_ids, []
        hosts = [host for host in hosts if host != NULL_BLOCK]
        if hosts:
            self._host_pool.free(seq.seq_id, hosts, seq.tenant)

    def _num_entries(self, seq: Sequence) -> int:
        """Return how many entries its table has when it is back."""
        return self._span.end(seq.num_computed_tokens, seq.num_tokens)

    def _kept(self, seq: Sequence) -> tuple[list[int], int]:
        """Return the gpu blocks that still keep its beginning, and how many of them are active."""
        if self._index is None or NULL_BLOCK in seq.host_block_ids:
            return [], 0
        found = self._index.lookup(seq).block_ids
        if NULL_BLOCK in found:  # only what a window reaches is kept
            found = found[: found.index(NULL_BLOCK)]
        # What is not computed yet was not swapped out: it is not this sequence's to find here.
        table = seq.block_table
        del found[seq.num_computed_tokens // table.block_size * table.num_groups :]
        return found, sum(map(bool, map(self._pool.counts.__getitem__, found)))

    def _state(
        self, kind: MoveKind, seq: Sequence, sources: list[int], targets: list[int], plan: StepPlan
    ) -> None:
        """Put moves into the plan, and record them."""
        pairs: list[int] = []
        for source, target in zip(sources, targets, strict=True):
            plan.block_moves.append(BlockMove(kind, source, target))
            pairs += (source, target)
        if self._recorder is None:
            return
        if kind is MoveKind.SWAP_OUT:
            self._recorder.swap_out(seq.seq_id, pairs, seq.tenant)
        else:
            self._recorder.swap_in(seq.seq_id, pairs, seq.tenant)


def _filled(seq: Sequence) -> list[int]:
    """Return the places in its table of the blocks that hold something."""
    end = _num_filled(seq)
    return [i for i, block in enumerate(seq.block_table.block_ids[:end]) if block != NULL_BLOCK]


def _num_filled(seq: Sequence) -> int:
    """Return how many places of its table its computed tokens reach."""
    table = seq.block_table
    return blocks_for(seq.num_computed_tokens, table.block_size) * table.num_groups
