"""The blocks of one tier: count, state and times of each, followed event by event but in numpy.

Rows (one for each block id of an allocate, share, free or evict) are sorted by block with a stable
radix sort; then each row's predecessor is its neighbour, or what was carried over from the last
batch. Differences are summed record by record, and running sums over records give the pool's totals
after every single one: audits need no split of the batch.

Block-seconds: F_b(t) is the integral of dt / count_b while block b is active. A sequence that takes
a reference subtracts F_b and one that drops it adds F_b, so that each reference pays 1/count.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from agent.ledger.event_columns import (
    OUTCOME_MASK,
    Bools,
    Bytes,
    EventColumns,
    Floats,
    Ints,
    Rows,
    kind_table,
    unroll,
)
from agent.ledger.outlived import NONE, Outlived, OutlivedBlocks, Turns
from agent.ledger.rows_by_block import ByBlock, runs_of, sorted_by_block, sums_by_record
from agent.ledger.runs import lengths_of
from kvpulse.events import HOST_TIER, BlockState, FreeOutcome, Kind, block_weight

FREE, CACHED, ACTIVE = (int(state) for state in BlockState)
STATE_KINDS: Final = kind_table((Kind.ALLOCATE, Kind.SHARE, Kind.FREE, Kind.EVICT))
TIERED_KINDS: Final = kind_table((Kind.ALLOCATE, Kind.SHARE, Kind.FREE, Kind.EVICT, Kind.CACHE))
OUTCOME_STATE: Final = np.array([ACTIVE, CACHED, FREE, ACTIVE], np.uint8)
# Active and cached blocks are counted in one number: whole floats are exact up to 2**53.
_CACHED_CELL: Final = float(1 << 26)
_CELLS: Final = np.zeros(len(BlockState))
_CELLS[[ACTIVE, CACHED]] = 1.0, _CACHED_CELL


@dataclass(frozen=True, slots=True)
class Flips:
    """Rows that made a block active (0 to 1) or ended that (to 0)."""

    record: Ints
    starts: Bools  # True: becomes active
    tenant: Ints  # of the record that made it active
    lifetime_ns: Ints  # of rows that end; says nothing of those that start
    since_known: Bools  # likewise
    outlived: Outlived  # what sharing kept active, where that ended


@dataclass(frozen=True, slots=True)
class BlockEffects:
    """What a stretch of events did to one tier; `*_after` stand after each record of it."""

    picked: Ints  # the records that changed something in this tier
    rows: Rows
    sign: npt.NDArray[np.int8]  # of each record: +1 takes references, -1 drops some, 0 evicts
    paid: Floats  # of each record: the sum of F over its blocks, in ns
    active_after: Ints
    cached_after: Ints
    sum_after: Ints
    row_end: Ints  # rows up to and including each record
    checksum_steps: npt.NDArray[np.uint64]  # running, over rows; begins with the value before
    flips: Flips

    @property
    def num_bad(self) -> int:
        """Ids that the tier does not have, left out."""
        return self.rows.num_bad

    def checksum_after(self, record: int) -> int:
        """Return the checksum of (block, count) after a record."""
        return int(self.checksum_steps[self.row_end[record]])


class BlockLedger:
    """Count, state, and times of every block of one tier."""

    def __init__(self, total_blocks: int, *, host: bool) -> None:
        self.host = host
        self.total = total_blocks
        self.count = np.zeros(total_blocks, np.int64)
        self.state = np.zeros(total_blocks, np.uint8)
        self.since_ns = np.zeros(total_blocks, np.int64)  # last change of count or state
        self.paid_at_ns = np.zeros(total_blocks, np.int64)  # `paid` stands at this time
        self.paid = np.zeros(total_blocks, np.float64)  # F of each block
        self.active_since_ns = np.zeros(total_blocks, np.int64)
        self.tenant = np.zeros(total_blocks, np.int64)  # of the record that made it active
        self.hash_known = np.zeros(total_blocks, bool)
        self.outlived = OutlivedBlocks(0 if host else total_blocks)
        self.weights = np.array([block_weight(b) for b in range(total_blocks)], np.uint64)
        self.active = self.cached = self.sum_counts = 0
        self.checksum = np.uint64(0)
        self.reset_totals()

    def reset_totals(self) -> None:
        """Begin the running totals of laws 2 and 3 anew, from the state that stands."""
        self.base_sum = self.sum_counts
        self.base_active = self.active
        self.taken = self.dropped = self.activations = self.deactivations = 0

    @property
    def free(self) -> int:
        """Blocks with neither a reference nor content."""
        return self.total - self.active - self.cached

    def grow(self, total_blocks: int) -> None:
        """Follow a `pool` record that states another size; blocks beyond a smaller one are free."""
        extra = total_blocks - len(self.count)
        if extra > 0:
            for name in ARRAYS:
                column = getattr(self, name)
                setattr(self, name, np.concatenate([column, np.zeros(extra, column.dtype)]))
            more = [block_weight(b) for b in range(len(self.weights), total_blocks)]
            self.weights = np.concatenate([self.weights, np.array(more, np.uint64)])
            self.outlived.grow(0 if self.host else total_blocks)
        self.total = total_blocks

    def picked(self, events: EventColumns) -> Ints:
        """Return the records that change a count or state in this tier."""
        wanted = STATE_KINDS[events.kind]
        wanted &= (events.flags & HOST_TIER != 0) == self.host
        wanted &= ~events.is_free(FreeOutcome.REFUSED)
        return np.flatnonzero(wanted)

    def apply(self, events: EventColumns) -> BlockEffects:
        """Follow a stretch of events; return what each row and record did."""
        picked = self.picked(events)
        rows = unroll(events, picked, len(self.count))
        outcomes = outcomes_of(events)
        by_block = sorted_by_block(rows, len(self.count))
        last_clear = by_block.latest(clearing_records(events), len(self.count))
        follow_content(events, last_clear, self.hash_known, host=self.host)
        moved = self._moved(by_block, outcomes.state, len(events))
        count = outcomes.counts.astype(np.float64).take(by_block.record)  # exact, below 2**32
        before = by_block.before(count, self.count)
        active, was_active = count > 0, before > 0
        # Whatever has a number for each row is dropped as soon as it is used: a stretch is large.
        count -= before
        changes = np.empty(len(count), np.int64)
        changes[by_block.order] = count.astype(np.int64)
        del count
        paid = self._pay(events.t_ns, by_block, before)
        del before
        last = by_block.record[by_block.tails]
        touched = by_block.touched
        self.count[touched], self.state[touched] = outcomes.counts[last], outcomes.state[last]
        self.since_ns[touched] = self.paid_at_ns[touched] = events.t_ns[last]
        self.paid[touched] = paid[by_block.tails]
        steps = _Steps(changes, moved, sums_by_record(by_block.record, paid, len(events)))
        del paid
        active ^= was_active
        turned = np.flatnonzero(active)
        record = by_block.record[turned]
        block = by_block.block[turned]
        turns = Turns(block, record, outcomes.counts[record] > 0, *runs_of(block))
        outlived = NONE if self.host else self.outlived.follow(events, by_block, active, turns)
        del by_block
        flips = self._follow_flips(events, turns, outlived)
        return self._after_each(picked, rows, steps, outcomes.sign, flips)

    def _moved(self, by_block: ByBlock, state: Bytes, num_records: int) -> Floats:
        cell = _CELLS[state].take(by_block.record)
        cell -= by_block.before(cell, _CELLS[self.state])
        return sums_by_record(by_block.record, cell, num_records)

    def _pay(self, t_ns: Ints, by_block: ByBlock, before: Floats) -> Floats:
        """Return F of each row's block at the row; `before` is used up."""
        heads, touched = by_block.heads, by_block.touched
        # From the stretch's beginning on, so that no digit of a float is wasted.
        begin = int(t_ns[0])
        t = (t_ns - begin).astype(np.float64).take(by_block.record)
        share = np.empty(len(t))
        np.subtract(t[1:], t[:-1], out=share[1:])
        share[heads] = t[heads] + (begin - self.paid_at_ns[touched])
        share *= np.minimum(before, 1.0, out=t)  # nobody pays while the count is 0
        share /= np.maximum(before, 1.0, out=before)
        base = self.paid[touched] + share[heads]
        running = np.cumsum(share, out=share)
        base -= running[heads]
        running += np.repeat(base, lengths_of(heads, len(t)))
        return running

    def _follow_flips(self, events: EventColumns, turns: Turns, outlived: Outlived) -> Flips:
        block, record, starts = turns.block, turns.record, turns.starts
        t_ns = events.t_ns[record]
        own_tenant = events.tenant.astype(np.int64)[record]
        since, tenant = np.empty_like(t_ns), np.empty_like(own_tenant)
        # Starts and ends take turns: what is before an end is the start it belongs to.
        since[1:], tenant[1:] = t_ns[:-1], own_tenant[:-1]
        heads, tails = turns.heads, turns.tails
        touched = block[heads]
        since[heads], tenant[heads] = self.active_since_ns[touched], self.tenant[touched]
        tenant = np.where(starts, own_tenant, tenant)
        self.active_since_ns[touched], self.tenant[touched] = t_ns[tails], tenant[tails]
        num_starts = int(np.count_nonzero(starts))
        self.activations += num_starts
        self.deactivations += len(starts) - num_starts
        return Flips(record, starts, tenant, t_ns - since, since >= 0, outlived)

    def _after_each(
        self,
        picked: Ints,
        rows: Rows,
        steps: "_Steps",
        sign: npt.NDArray[np.int8],
        flips: Flips,
    ) -> BlockEffects:
        """Add up in event order what the rows changed."""
        num_rows = np.bincount(rows.record, minlength=len(sign))
        row_end = np.cumsum(num_rows)
        sums = np.empty(len(rows.block) + 1, np.uint64)
        sums[0] = self.checksum
        np.take(self.weights, rows.block, out=sums[1:], mode="clip")
        sums[1:] *= steps.changes.view(np.uint64)
        np.cumsum(sums, out=sums)
        running = np.zeros(len(sums), np.int64)
        np.cumsum(steps.changes, out=running[1:])
        counts = running[row_end]
        cached = np.rint(steps.moved / _CACHED_CELL)
        active = np.cumsum((steps.moved - cached * _CACHED_CELL).astype(np.int64))
        cached = np.cumsum(cached.astype(np.int64))
        effects = BlockEffects(
            picked=picked,
            rows=rows,
            sign=sign,
            paid=steps.paid,
            active_after=self.active + active,
            cached_after=self.cached + cached,
            sum_after=self.sum_counts + counts,
            row_end=row_end,
            checksum_steps=sums,
            flips=flips,
        )
        self.checksum = sums[-1]
        self.sum_counts += int(counts[-1])
        self.active += int(active[-1])
        self.cached += int(cached[-1])
        self.taken += int(num_rows[sign > 0].sum())
        self.dropped += int(num_rows[sign < 0].sum())
        return effects

    def paid_now(self, t_ns: int) -> Floats:
        """Return F of every block at a time."""
        elapsed = (t_ns - self.paid_at_ns).astype(np.float64)
        return self.paid + np.divide(
            elapsed, self.count, out=np.zeros(len(self.count)), where=self.count > 0
        )


ARRAYS: Final = (
    "count",
    "state",
    "since_ns",
    "paid_at_ns",
    "paid",
    "active_since_ns",
    "tenant",
    "hash_known",
)


class Outcomes(NamedTuple):
    """For each record: count and state of its blocks after it, and its sign."""

    counts: Ints
    state: Bytes
    sign: npt.NDArray[np.int8]


class _Steps(NamedTuple):
    """What changed, in event order."""

    changes: Ints  # of each row's count
    moved: Floats  # by each record: the sum of its rows' steps between `_CELLS`
    paid: Floats  # at each record: the sum of its blocks' F


def outcomes_of(events: EventColumns) -> Outcomes:
    """Return what each block record makes of its blocks."""
    frees, evicts = events.is_kind(Kind.FREE), events.is_kind(Kind.EVICT)
    count = np.where(evicts, 0, events.aux)
    outcome = OUTCOME_STATE[events.flags & OUTCOME_MASK]
    state = np.where(frees, outcome, np.where(evicts, FREE, ACTIVE)).astype(np.uint8)
    # What the count says wins over a damaged outcome: active is count 1 or more, nothing else.
    state[(count > 0) & frees] = ACTIVE
    state[(count == 0) & (state == ACTIVE)] = FREE
    return Outcomes(count, state, np.where(frees, -1, np.where(evicts, 0, 1)).astype(np.int8))


def follow_content(
    events: EventColumns, last_clear: Ints, known: Bools, *, host: bool, until: int | None = None
) -> None:
    """Follow which blocks carry content identity, in place.

    It is known from `cache` on, until the block is taken for new data, evicted, or freed without
    keeping its content.

    Args:
        last_clear: For each block, the last record that took its content away; -1: none.
        until: Only records before this one; all if None.
    """
    caches = events.is_kind(Kind.CACHE) & ((events.flags & HOST_TIER != 0) == host)
    if until is not None:
        caches[until:] = False
    cached = unroll(events, np.flatnonzero(caches), len(known))
    last_set = np.full(len(known), -1, np.int64)
    last_set[cached.block] = cached.record  # the last assignment wins, and rows are in event order
    touched = np.maximum(last_set, last_clear) >= 0
    known[touched] = (last_set > last_clear)[touched]


def clearing_records(events: EventColumns) -> Ints:
    """Return each record's own index if it leaves its blocks without known content, else -1."""
    clears = events.is_kind(Kind.ALLOCATE) | events.is_kind(Kind.EVICT)
    clears |= events.is_free(FreeOutcome.TO_FREE)
    return np.where(clears, np.arange(len(events)), -1)
