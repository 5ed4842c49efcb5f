"""The blocks of one tier: count, state and times of each, followed event by event but in numpy.

Rows (one for each block id of an allocate, share, free or evict) are sorted by block with a stable
radix sort; then each row's predecessor is its neighbour, or what was carried over from the last
batch. Differences go back into event order, where running sums give the pool's totals after every
single record: audits need no split of the batch.

Block-seconds: F_b(t) is the integral of dt / count_b while block b is active. A sequence that takes
a reference subtracts F_b and one that drops it adds F_b, so that each reference pays 1/count.
"""

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from agent.event_columns import (
    Bools,
    Bytes,
    EventColumns,
    Floats,
    Ints,
    Rows,
    kind_table,
    unroll,
)
from kvpulse.events import HOST_TIER, BlockState, FreeOutcome, Kind, block_weight

FREE, CACHED, ACTIVE = (int(state) for state in BlockState)
OUTCOME_MASK: Final = 3
STATE_KINDS: Final = kind_table((Kind.ALLOCATE, Kind.SHARE, Kind.FREE, Kind.EVICT))
TIERED_KINDS: Final = kind_table((Kind.ALLOCATE, Kind.SHARE, Kind.FREE, Kind.EVICT, Kind.CACHE))
OUTCOME_STATE: Final = np.array([ACTIVE, CACHED, FREE, ACTIVE], np.uint8)


@dataclass(frozen=True, slots=True)
class Flips:
    """Rows that made a block active (0 to 1) or ended that (to 0)."""

    record: Ints
    starts: Bools  # True: becomes active
    tenant: Ints  # of the record that made it active
    lifetime_ns: Ints  # of rows that end; 0 for those that start
    since_known: Bools


@dataclass(frozen=True, slots=True)
class BlockEffects:
    """What a stretch of events did to one tier; `*_after` stand after each record of it."""

    picked: Ints  # the records that changed something in this tier
    record: Ints  # of each row
    block: Ints
    sign: npt.NDArray[np.int8]  # +1 takes a reference, -1 drops one, 0 evicts
    paid: Floats  # F of the row's block at the row, in ns
    active_after: Ints
    cached_after: Ints
    sum_after: Ints
    row_end: Ints  # rows up to and including each record
    checksum_steps: npt.NDArray[np.uint64]  # running, over rows; begins with the value before
    flips: Flips
    num_bad: int

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
        self.total = total_blocks

    def picked(self, events: EventColumns) -> Ints:
        """Return the records that change a count or state in this tier."""
        wanted = STATE_KINDS[events.kind]
        wanted &= (events.flags & HOST_TIER != 0) == self.host
        refused = events.flags & OUTCOME_MASK == FreeOutcome.REFUSED
        wanted &= ~(refused & (events.kind == Kind.FREE))
        return np.flatnonzero(wanted)

    def apply(self, events: EventColumns) -> BlockEffects:
        """Follow a stretch of events; return what each row and record did."""
        picked = self.picked(events)
        rows = unroll(events, picked, len(self.count))
        content_known(events, rows, self.hash_known, host=self.host)
        return self._sorted_pass(events, picked, rows, outcomes_of(events))

    def _sorted_pass(
        self, events: EventColumns, picked: Ints, rows: Rows, outcomes: "Outcomes"
    ) -> BlockEffects:
        small = len(self.count) <= 1 << 16
        order = np.argsort(rows.block.astype(np.uint16 if small else np.uint32), kind="stable")
        by_block, by_record = rows.block[order], rows.record[order]
        count, state = outcomes.counts[by_record], outcomes.state[by_record]
        t_ns = events.t_ns[by_record]
        heads, tails = _runs(by_block)
        first, last = by_block[heads], by_block[tails]
        before, state_before = np.empty_like(count), np.empty_like(state)
        before[1:], state_before[1:] = count[:-1], state[:-1]
        before[heads], state_before[heads] = self.count[first], self.state[first]
        paid = self._pay(by_block, t_ns, before, heads)
        flips = self._follow_flips(events, by_block, by_record, count, before)
        self.count[last], self.state[last] = count[tails], state[tails]
        self.since_ns[last] = self.paid_at_ns[last] = t_ns[tails]
        self.paid[last] = paid[tails]
        turns = (count > 0).view(np.int8) - (before > 0).view(np.int8)
        cachings = (state == CACHED).view(np.int8) - (state_before == CACHED).view(np.int8)
        steps = _Steps(order, count - before, turns, cachings, paid)
        return self._in_event_order(len(events), picked, rows, steps, outcomes.sign, flips)

    def _pay(self, by_block: Ints, t_ns: Ints, before: Ints, heads: Ints) -> Floats:
        elapsed = np.empty(len(t_ns), np.float64)
        elapsed[1:] = t_ns[1:] - t_ns[:-1]
        elapsed[heads] = t_ns[heads] - self.paid_at_ns[by_block[heads]]
        share = np.divide(elapsed, before, out=np.zeros(len(t_ns)), where=before > 0)
        running = np.cumsum(share)
        base = self.paid[by_block[heads]] - (running[heads] - share[heads])
        lengths = np.diff(heads, append=len(t_ns))
        paid: Floats = running + np.repeat(base, lengths)
        return paid

    def _follow_flips(
        self, events: EventColumns, by_block: Ints, by_record: Ints, count: Ints, before: Ints
    ) -> Flips:
        turns = np.flatnonzero((count > 0) != (before > 0))
        block, record = by_block[turns], by_record[turns]
        t_ns, starts = events.t_ns[record], count[turns] > 0
        since, tenant = np.empty_like(t_ns), np.empty(len(turns), np.int64)
        own_tenant = events.tenant[record].astype(np.int64)
        since[1:], tenant[1:] = t_ns[:-1], own_tenant[:-1]
        heads, tails = _runs(block)
        since[heads] = self.active_since_ns[block[heads]]
        tenant[heads] = self.tenant[block[heads]]
        since, tenant = np.where(starts, t_ns, since), np.where(starts, own_tenant, tenant)
        self.active_since_ns[block[tails]] = since[tails]
        self.tenant[block[tails]] = tenant[tails]
        num_starts = int(starts.sum())
        self.activations += num_starts
        self.deactivations += len(turns) - num_starts
        return Flips(record, starts, tenant, t_ns - since, since >= 0)

    def _in_event_order(
        self,
        num_records: int,
        picked: Ints,
        rows: Rows,
        steps: "_Steps",
        sign_of: npt.NDArray[np.int8],
        flips: Flips,
    ) -> BlockEffects:
        num_rows = len(steps.order)
        changes = np.empty(num_rows, np.int64)
        changes[steps.order] = steps.changes
        paid = np.empty(num_rows)
        paid[steps.order] = steps.paid
        sums = np.empty(num_rows + 1, np.uint64)
        sums[0] = self.checksum
        np.multiply(self.weights[rows.block], changes.view(np.uint64), out=sums[1:])
        np.cumsum(sums, out=sums)
        row_end = np.cumsum(np.bincount(rows.record, minlength=num_records))
        running = [_running(changes)]
        for step in (steps.turns, steps.cachings):
            by_event = np.empty(num_rows, np.int8)
            by_event[steps.order] = step
            running.append(_running(by_event))
        after = [sums_of[row_end] for sums_of in running]
        sign = sign_of[rows.record]
        effects = BlockEffects(
            picked=picked,
            record=rows.record,
            block=rows.block,
            sign=sign,
            paid=paid,
            active_after=self.active + after[1],
            cached_after=self.cached + after[2],
            sum_after=self.sum_counts + after[0],
            row_end=row_end,
            checksum_steps=sums,
            flips=flips,
            num_bad=rows.num_bad,
        )
        self._carry([int(sums_of[-1]) for sums_of in running], sums[-1], sign)
        return effects

    def _carry(self, totals: list[int], checksum: np.uint64, sign: npt.NDArray[np.int8]) -> None:
        self.sum_counts += totals[0]
        self.active += totals[1]
        self.cached += totals[2]
        self.checksum = checksum
        self.taken += int((sign > 0).sum())
        self.dropped += int((sign < 0).sum())

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
    """What each row changed, sorted by block."""

    order: Ints  # event position of each sorted row
    changes: Ints  # of the count
    turns: npt.NDArray[np.int8]  # +1 becomes active, -1 ends being so
    cachings: npt.NDArray[np.int8]
    paid: Floats


def outcomes_of(events: EventColumns) -> Outcomes:
    """Return what each block record makes of its blocks."""
    frees, evicts = events.kind == Kind.FREE, events.kind == Kind.EVICT
    count = np.where(evicts, 0, events.aux)
    outcome = OUTCOME_STATE[events.flags & OUTCOME_MASK]
    state = np.where(frees, outcome, np.where(evicts, FREE, ACTIVE)).astype(np.uint8)
    # What the count says wins over a damaged outcome: active is count 1 or more, nothing else.
    state[(count > 0) & frees] = ACTIVE
    state[(count == 0) & (state == ACTIVE)] = FREE
    return Outcomes(count, state, np.where(frees, -1, np.where(evicts, 0, 1)).astype(np.int8))


def _running(steps: npt.NDArray[Any]) -> Ints:
    """Return running sums that begin with 0."""
    running = np.zeros(len(steps) + 1, np.int64)
    np.cumsum(steps, out=running[1:])
    return running


def _runs(sorted_keys: Ints) -> tuple[Ints, Ints]:
    """Return the first and last index of each run of equal keys."""
    if not len(sorted_keys):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    edges = np.flatnonzero(sorted_keys[1:] != sorted_keys[:-1])
    return np.concatenate([[0], edges + 1]), np.concatenate([edges, [len(sorted_keys) - 1]])


def content_known(
    events: EventColumns, rows: Rows, known: Bools, *, host: bool, until: int | None = None
) -> None:
    """Follow which blocks carry content identity, in place.

    It is known from `cache` on, until the block is taken for new data, evicted, or freed without
    keeping its content.

    Args:
        rows: The rows that change a count or state.
        until: Only records before this one; all if None.
    """
    caches = (events.kind == Kind.CACHE) & ((events.flags & HOST_TIER != 0) == host)
    if until is not None:
        caches[until:] = False
    cached = unroll(events, np.flatnonzero(caches), len(known))
    clears = (events.kind == Kind.ALLOCATE) | (events.kind == Kind.EVICT)
    clears |= (events.kind == Kind.FREE) & (events.flags & OUTCOME_MASK == FreeOutcome.TO_FREE)
    cleared = clears[rows.record]
    # The last assignment wins, and rows are in event order.
    last_set, last_clear = (np.full(len(known), -1, np.int64) for _ in range(2))
    last_set[cached.block] = cached.record
    last_clear[rows.block[cleared]] = rows.record[cleared]
    touched = np.maximum(last_set, last_clear) >= 0
    known[touched] = (last_set > last_clear)[touched]
