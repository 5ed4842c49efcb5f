"""Who holds what: every live (sequence, block) reference, in the order in which it was taken.

Taking and dropping references only appends; the set is worked out when somebody asks. A sequence
that holds nothing any more needs no matching (all its rows go), and one that only took references
needs none either, so sorting is left for those that dropped some and kept some.
"""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from agent.ledger.event_columns import Bools, Ints
from agent.ledger.runs import lengths_of

Slots = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class _Moves:
    slot: Slots
    block: Slots
    drops: Bools


def _no_slots() -> Slots:
    return np.zeros(0, np.int32)


@dataclass(slots=True)
class ReferenceLedger:
    """Live references by slot (see `OwnerLedger`) and block; a table order per slot."""

    slot: Slots = field(default_factory=_no_slots)
    block: Slots = field(default_factory=_no_slots)
    _pending: list[_Moves] = field(default_factory=list)

    def append(self, slot: Slots, block: Slots, drops: Bools) -> None:
        """Note references taken and dropped, in event order."""
        if len(slot):
            self._pending.append(_Moves(slot, block, drops))

    @property
    def num_pending(self) -> int:
        """Moves not worked out yet."""
        return sum(len(moves.slot) for moves in self._pending)

    def settle(self, held: Ints) -> None:
        """Work out the live set; `held` is the number of references of each slot."""
        if not self._pending:
            return
        slot = np.concatenate([self.slot, *(moves.slot for moves in self._pending)])
        block = np.concatenate([self.block, *(moves.block for moves in self._pending)])
        old = np.zeros(len(self.slot), bool)
        drops = np.concatenate([old, *(moves.drops for moves in self._pending)])
        self._pending = []
        holds = held[slot] > 0
        slot, block, drops = slot[holds], block[holds], drops[holds]
        if drops.any():
            has_dropped = np.zeros(len(held), bool)
            has_dropped[slot[drops]] = True
            mixed = np.flatnonzero(has_dropped[slot])
            keep = ~has_dropped[slot]
            keep[mixed] = _unmatched(slot[mixed], block[mixed], drops[mixed])
            slot, block = slot[keep], block[keep]
        self.slot, self.block = slot, block

    def replace(self, slot: Ints, block: Ints) -> None:
        """Forget everything and hold these references instead (from a keyframe)."""
        self._pending = []
        self.slot, self.block = slot.astype(np.int32), block.astype(np.int32)

    def of_slots(self, slots: Ints) -> tuple[Slots, Slots]:
        """Return the references of some slots; `settle` first."""
        chosen = np.isin(self.slot, slots)
        return self.slot[chosen], self.block[chosen]


def _unmatched(slot: Slots, block: Slots, drops: Bools) -> Bools:
    """Return which rows are references still held: of each (slot, block), the newest ones."""
    order = np.argsort(slot.astype(np.int64) << 32 | block, kind="stable")
    by_slot, by_block, is_drop = slot[order], block[order], drops[order]
    new = np.ones(len(order), bool)
    new[1:] = (by_slot[1:] != by_slot[:-1]) | (by_block[1:] != by_block[:-1])
    heads = np.flatnonzero(new)
    lengths = lengths_of(heads, len(order))
    net = np.add.reduceat(np.where(is_drop, -1, 1), heads)
    takes = (~is_drop).astype(np.int64)
    running = np.cumsum(takes)
    taken = np.add.reduceat(takes, heads)
    # The how-manieth newest taking of its group each row is.
    newest_first = np.repeat(running[heads] - takes[heads] + taken, lengths) - running + 1
    keep = np.empty(len(order), bool)
    keep[order] = ~is_drop & (newest_first <= np.repeat(net, lengths))
    return keep
