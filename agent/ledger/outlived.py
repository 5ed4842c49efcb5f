"""What sharing keeps alive: the time a block stays active after its first holder let go of it.

It is counted when that time ends. Rows are those of `BlockLedger.apply`, sorted by block; a *turn*
is a row that made a block active or ended that, so a block's turns are starts and ends by turns.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from agent.ledger.event_columns import Bools, EventColumns, Ints
from agent.ledger.rows_by_block import ByBlock
from kvpulse.events import FreeOutcome, Kind

NOT: Final = -1  # the first holder still holds it, or nobody does, or it is not known


@dataclass(frozen=True, slots=True)
class Turns:
    """Rows that made a block active or ended that, sorted by block."""

    block: npt.NDArray[np.int32]
    record: Ints
    starts: Bools
    heads: Ints  # of each run of one block's turns, the first
    tails: Ints  # and the last


@dataclass(frozen=True, slots=True)
class Outlived:
    """Stretches that ended: at which record, and how long they were."""

    record: Ints
    block_ns: Ints


NONE: Final = Outlived(np.zeros(0, np.int64), np.zeros(0, np.int64))


class OutlivedBlocks:
    """For each block: who made it active, and since when it outlives that."""

    def __init__(self, num_blocks: int) -> None:
        self.first_owner = np.zeros(num_blocks, np.int64)
        self.since_ns = np.full(num_blocks, NOT, np.int64)

    def grow(self, num_blocks: int) -> None:
        """Follow a pool that grew."""
        extra = num_blocks - len(self.since_ns)
        if extra > 0:
            self.first_owner = np.concatenate([self.first_owner, np.zeros(extra, np.int64)])
            self.since_ns = np.concatenate([self.since_ns, np.full(extra, NOT, np.int64)])

    def forget(self) -> None:
        """Note that something was missed: who made an active block active is not known."""
        self.first_owner[:], self.since_ns[:] = 0, NOT

    def open_ns(self, t_ns: int) -> int:
        """Return what has passed so far of those stretches that last."""
        lasting = self.since_ns[self.since_ns >= 0]
        return int((t_ns - lasting).sum())

    def follow(
        self, events: EventColumns, by_block: ByBlock, turned: Bools, turns: Turns
    ) -> Outlived:
        """Follow a stretch; `turned` says of each row whether it is a turn."""
        held_on = events.is_kind(Kind.FREE) & (events.aux > 0)
        held_on &= ~events.is_free(FreeOutcome.REFUSED)
        drops = None
        if held_on.any():
            at = np.flatnonzero(held_on[by_block.record])
            # How many turns are before each of these rows: the next turn has that index.
            num_before = np.cumsum(turned, dtype=np.int32)[at]
            drops = self._let_go(events, by_block, turns, _Rows(at, num_before))
        ended = self._end_carried(events, turns)
        last = turns.tails  # an end leaves a block that nobody holds: its first owner is not asked
        self.first_owner[turns.block[last]] = events.owner[turns.record[last]]
        if drops is None:
            return ended
        self.since_ns[drops.block[drops.lasts]] = drops.begun_ns[drops.lasts]
        record = turns.record[drops.turn[drops.ends]]
        lasted = events.t_ns[record] - drops.begun_ns[drops.ends]
        return Outlived(
            np.concatenate([ended.record, record]), np.concatenate([ended.block_ns, lasted])
        )

    def _end_carried(self, events: EventColumns, turns: Turns) -> Outlived:
        """End what lasted before the stretch where the block's first turn is an end."""
        heads = turns.heads
        lasts = self.since_ns[turns.block[heads]] >= 0
        ends = heads[lasts & ~turns.starts[heads]]
        if not len(ends):
            return NONE
        block, record = turns.block[ends], turns.record[ends]
        lasted = events.t_ns[record] - self.since_ns[block]
        self.since_ns[block] = NOT
        return Outlived(record, lasted)

    def _let_go(
        self, events: EventColumns, by_block: ByBlock, turns: Turns, rows: "_Rows"
    ) -> "_Drops":
        """Return where a first holder lets go and others hold on."""
        block, record = by_block.block[rows.at], by_block.record[rows.at]
        first = self.first_owner[block]
        if len(turns.block):
            before = np.maximum(rows.num_before - 1, 0)
            mine = (rows.num_before > 0) & (turns.block[before] == block)
            first[mine] = events.owner[turns.record[before[mine]]]
            first[~mine & (self.since_ns[block] >= 0)] = 0  # it has let go already
        else:
            first[self.since_ns[block] >= 0] = 0
        chosen = np.flatnonzero((first == events.owner[record]) & (first > 0))
        block, turn = block[chosen], rows.num_before[chosen]
        # It may hold a block twice: the first drop counts. Rows of one block are in event order.
        again = np.zeros(len(chosen), bool)
        again[1:] = (block[1:] == block[:-1]) & (turn[1:] == turn[:-1])
        block, turn, begun = block[~again], turn[~again], events.t_ns[record[chosen]][~again]
        ends = turn < len(turns.block)
        ends[ends] = turns.block[turn[ends]] == block[ends]
        return _Drops(block, begun, turn, ends)


@dataclass(frozen=True, slots=True)
class _Rows:
    at: Ints  # among the sorted rows
    num_before: npt.NDArray[np.int32]  # turns before each


@dataclass(frozen=True, slots=True)
class _Drops:
    block: npt.NDArray[np.int32]
    begun_ns: Ints
    turn: npt.NDArray[np.int32]  # the next turn's index
    ends: Bools  # that turn is of the same block: there it ends

    @property
    def lasts(self) -> Bools:
        return ~self.ends
