"""What each sequence holds and has paid: references, peak, sharing, block-seconds.

Sequences live in slots of plain arrays. A slot is used again once its sequence has ended, holds
nothing, and its row has been handed out.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from agent.ledger.block_ledger import BlockEffects, BlockLedger
from agent.ledger.event_columns import OUTCOME_MASK, EventColumns, Floats, Ints
from agent.ledger.reference_ledger import ReferenceLedger
from agent.ledger.runs import differences, heads_of, tails_of
from agent.ledger.strays import holders_of
from kvpulse.events import UNKNOWN_OWNER, FreeOutcome, Kind

COLUMNS: Final = (
    "held",
    "peak",
    "shared_now",
    "shared_least",
    "shared_most",
    "first_block_ns",
    "paid",
)
NO_SLOT: Final = -1
FREE, SHARE, EVICT = int(Kind.FREE), int(Kind.SHARE), int(Kind.EVICT)
HELD: Final = int(FreeOutcome.HELD)


@dataclass(frozen=True, slots=True)
class FirstBlock:
    """A sequence's first block, ever."""

    owner: int
    t_ns: int


@dataclass(frozen=True, slots=True)
class Sharing:
    """How a live sequence's references overlap with others'."""

    logical: int
    physical: int
    within: int  # of its references, those to a block it or its request holds otherwise
    across: int  # of its blocks, those that another request holds too


class OwnerLedger:
    """Per sequence: references held, peak, block-seconds; and the reference set itself."""

    def __init__(self) -> None:
        self.slots: dict[int, int] = {}
        self.owner = np.zeros(256, np.int64)
        self.held = np.zeros(256, np.int64)
        self.peak = np.zeros(256, np.int64)
        # A running count of blocks it shares: +n taken by `share` beside another holder, -n
        # dropped while another still holds them. Its span is how many it shared at its best.
        self.shared_now = np.zeros(256, np.int64)
        self.shared_least = np.zeros(256, np.int64)
        self.shared_most = np.zeros(256, np.int64)
        self.first_block_ns = np.zeros(256, np.int64)
        self.paid = np.zeros(256, np.float64)  # block-ns of references dropped, minus F at taking
        self.references = ReferenceLedger()
        self.retired_paid = 0.0
        self._unused: list[int] = list(range(255, -1, -1))
        self._ended: list[int] = []
        self.num_negative = 0  # sequences that dropped more than they were seen to take

    def slot_of(self, owner: int) -> int:
        """Return a sequence's slot; a new one for a sequence not seen before."""
        slot = self.slots.get(owner)
        if slot is None:
            if not self._unused:
                self._grow()
            slot = self.slots[owner] = self._unused.pop()
            self.owner[slot] = owner
        return slot

    def _grow(self) -> None:
        size = len(self.held)
        for name in ("owner", *COLUMNS):
            column = getattr(self, name)
            setattr(self, name, np.concatenate([column, np.zeros_like(column)]))
        self._unused = list(range(2 * size - 1, size - 1, -1))

    def apply(self, events: EventColumns, effects: BlockEffects) -> list[FirstBlock]:
        """Follow the references that a stretch of events took and dropped."""
        picked = effects.picked[events.kind[effects.picked] != EVICT]
        if not len(picked):
            return []
        holders = events.owner[picked]
        if self.held_by(UNKNOWN_OWNER) > 0:
            holders = holders_of(events, picked, self.slots.keys())
        owners, local = _inverse(holders)
        slots = np.array([self.slot_of(owner) for owner in owners.tolist()], np.int64)
        sign = effects.sign[picked]
        self.paid[slots] -= np.bincount(
            local, weights=effects.paid[picked] * sign, minlength=len(slots)
        )
        num_rows = differences(effects.row_end, before=0)[picked]
        rows = effects.rows
        self.references.append(
            np.repeat(slots.astype(np.int32)[local], num_rows),
            rows.block[effects.sign[rows.record] != 0],
            np.repeat(sign < 0, num_rows),
        )
        return self._follow_counts(events, picked, local, slots)

    def _follow_counts(
        self, events: EventColumns, picked: Ints, local: Ints, slots: Ints
    ) -> list[FirstBlock]:
        kind, n, aux = events.kind[picked], events.n[picked], events.aux[picked]
        frees = kind == FREE
        held_on = frees & (events.flags[picked] & OUTCOME_MASK == HELD)
        beside = (kind == SHARE) & (aux >= 2)
        order = np.argsort(
            local.astype(np.uint16 if len(slots) < 1 << 16 else np.uint32), kind="stable"
        )
        heads = np.searchsorted(local[order], np.arange(len(slots)))
        steps = np.where(frees, -n, n)
        held = _Running.over(steps[order], heads)
        shared = _Running.over((np.where(beside, n, 0) - np.where(held_on, n, 0))[order], heads)
        self.peak[slots] = np.maximum(self.peak[slots], self.held[slots] + held.most)
        self.held[slots] += held.last
        now = self.shared_now[slots]
        self.shared_least[slots] = np.minimum(self.shared_least[slots], now + shared.least)
        self.shared_most[slots] = np.maximum(self.shared_most[slots], now + shared.most)
        self.shared_now[slots] = now + shared.last
        self.num_negative += int((self.held[slots] < 0).sum())
        first_record = picked[order[heads]]
        new = (self.first_block_ns[slots] == 0) & ~frees[order[heads]]
        self.first_block_ns[slots[new]] = events.t_ns[first_record[new]]
        return [
            FirstBlock(int(self.owner[slot]), int(self.first_block_ns[slot])) for slot in slots[new]
        ]

    def held_by(self, owner: int) -> int:
        """Return how many references a sequence holds now."""
        slot = self.slots.get(owner)
        return 0 if slot is None else int(self.held[slot])

    def retire(self, owner: int) -> None:
        """Note that a sequence ended: its slot may be used again once it holds nothing."""
        if owner in self.slots:
            self._ended.append(owner)

    def recycle(self) -> None:
        """Take back the slots of sequences that ended and hold nothing; references are settled."""
        kept: list[int] = []
        for owner in self._ended:
            slot = self.slots.get(owner, NO_SLOT)
            if slot == NO_SLOT:
                continue  # ended twice: an engine that used a number again
            if self.held[slot] > 0:
                kept.append(owner)
                continue
            self.retired_paid += float(self.paid[slot])
            del self.slots[owner]
            self._unused.append(slot)
            for name in ("owner", *COLUMNS):
                getattr(self, name)[slot] = 0
        self._ended = kept

    def paid_now(self, blocks: BlockLedger, t_ns: int) -> Floats:
        """Return each slot's block-ns up to a time; `references.settle` first."""
        now = blocks.paid_now(t_ns)[self.references.block]
        size = len(self.held)
        return self.paid + np.bincount(self.references.slot, weights=now, minlength=size)

    def rebase(self, blocks: BlockLedger, t_ns: int) -> None:
        """Let every F be 0 at a time, without changing what anybody has paid.

        References are settled. Snapshots need not store F then, and it never grows so large that
        digits are lost.
        """
        self.paid = self.paid_now(blocks, t_ns)
        blocks.paid[:] = 0.0
        blocks.paid_at_ns[:] = t_ns

    def sharing(self, group_of: dict[int, int]) -> dict[int, Sharing]:
        """Return how each sequence's references overlap; `references.settle` first.

        Args:
            group_of: The request (its first sequence's number) of each sequence; default itself.
        """
        slot, block = self.references.slot, self.references.block
        if not len(slot):
            return {}
        group = np.array([group_of.get(owner, owner) for owner in self.owner.tolist()], np.int64)[
            slot
        ]
        return _overlaps(self.owner, slot.astype(np.int64), block.astype(np.int64), group)


@dataclass(frozen=True, slots=True)
class _Running:
    least: Ints
    most: Ints
    last: Ints

    @classmethod
    def over(cls, steps: Ints, heads: Ints) -> "_Running":
        """Return least, most and last of the running sum of each group that begins at a head."""
        running = np.cumsum(steps)
        base = running[heads] - steps[heads]
        tails = tails_of(heads, len(steps))
        return cls(
            np.minimum.reduceat(running, heads) - base,
            np.maximum.reduceat(running, heads) - base,
            running[tails] - base,
        )


def _inverse(owners: "np.typing.NDArray[np.uint32]") -> tuple[Ints, Ints]:
    """Return the distinct owners and each record's index among them."""
    low, high = int(owners.min()), int(owners.max())
    if high - low > 4 * len(owners) + 65_536:
        distinct, inverse = np.unique(owners, return_inverse=True)
        return distinct.astype(np.int64), inverse.astype(np.int64)
    offsets = owners.astype(np.int64) - low
    present = np.zeros(high - low + 1, bool)
    present[offsets] = True
    rank = np.cumsum(present) - 1
    return np.flatnonzero(present) + low, rank[offsets]


def _overlaps(owner: Ints, slot: Ints, block: Ints, group: Ints) -> dict[int, Sharing]:
    size = int(slot.max()) + 1
    logical = np.bincount(slot, minlength=size)
    # Nearly every block has one reference; only the others need looking at.
    many = np.bincount(block)[block] > 1
    slot, block, group = slot[many], block[many], group[many]
    pair = _distinct(slot << 32 | block)
    group_rank = np.searchsorted(_distinct(group), group)
    request_block = group_rank << 32 | block
    requests = _distinct(request_block)
    at = np.searchsorted(requests, request_block)
    per_request = np.bincount(at, minlength=len(requests))
    within = np.bincount(slot, weights=per_request[at] > 1, minlength=size)
    requests_of = np.bincount(requests & 0xFFFF_FFFF)
    pair_slot, pair_block = pair >> 32, pair & 0xFFFF_FFFF
    across = np.bincount(pair_slot, weights=requests_of[pair_block] > 1, minlength=size)
    repeats = np.bincount(slot, minlength=size) - np.bincount(pair_slot, minlength=size)
    physical = logical - repeats
    return {
        int(owner[s]): Sharing(int(logical[s]), int(physical[s]), int(within[s]), int(across[s]))
        for s in np.flatnonzero(logical).tolist()
    }


def _distinct(keys: Ints) -> Ints:
    """Return the distinct keys in order; sorting beats numpy's hashing here."""
    keys = np.sort(keys)
    return keys[heads_of(keys)]
