"""A ledger of dictionaries and loops, slow and obviously right: the measure of the fast one.

It follows one record after the other, and pays block-seconds holder by holder.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from agent.chunks.chunk import Stretch
from agent.ledger.event_columns import columns_of
from agent.ledger.intervals import SECOND_NS
from agent.ledger.request_state import CAUSE_LABELS
from kvpulse.events import HOST_TIER, BlockState, FreeOutcome, Kind, WaitCause, event_count

_NAMES: Final = {
    Kind.ALLOCATE: "allocated",
    Kind.SHARE: "shared",
    Kind.FREE: "freed",
    Kind.EVICT: "evicted",
    Kind.CACHE: "cached_new",
}


@dataclass(slots=True)
class PlainBlock:
    """One block."""

    count: int = 0
    state: int = int(BlockState.FREE)
    holders: list[int] = field(default_factory=list)
    paid_at_ns: int = 0
    active_since_ns: int = 0
    hash_known: bool = False
    first_owner: int = 0  # who made it active
    outlives_since_ns: int | None = None  # since when the first owner holds it no more


@dataclass(slots=True)
class PlainSequence:
    """One sequence."""

    arrived_ns: int
    cause: int = 0
    since_ns: int = 0
    admitted: bool = False
    ended: bool = False
    waits: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    after_preempt_ns: int = 0
    block_ns: float = 0.0
    held: int = 0
    peak: int = 0
    request: int = 0  # its request's first sequence
    blocker: int = 0
    blocker_since_ns: int = 0
    blocked_others_ns: int = 0


@dataclass(slots=True)
class PlainSecond:
    """What passed in one second."""

    counters: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    active_ns: int = 0
    waited_ns: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    active_at_end: int = 0


class PlainLedger:
    """State and sums, one record at a time. It knows streams that begin empty and have no gap."""

    def __init__(self, total_blocks: int, wall_offset_ns: int) -> None:
        self.blocks = [PlainBlock() for _ in range(total_blocks)]
        self.sequences: dict[int, PlainSequence] = {}
        self.seconds: dict[int, PlainSecond] = defaultdict(PlainSecond)
        self.lifetimes_ns: list[int] = []
        self.per_kind: dict[int, int] = defaultdict(int)
        self.audits_failed = 0
        self.outlived_ns = 0  # of stretches that ended
        self.requests_ended = 0
        self.num_active = 0
        self._waiting: set[int] = set()
        self._offset = wall_offset_ns
        self._t_ns = 0

    def apply(self, stretch: Stretch) -> None:
        """Follow records one by one."""
        events = columns_of(stretch.records, stretch.lane, stretch.lane_base)
        for i in range(len(events)):
            kind, t_ns = Kind(int(events.kind[i])), int(events.t_ns[i])
            n = int(events.n[i])
            self._pass_time(t_ns)
            self.per_kind[kind] += event_count(kind, n)
            flags, aux, owner = int(events.flags[i]), int(events.aux[i]), int(events.owner[i])
            second = self._second(t_ns)
            if kind in _NAMES and not flags & HOST_TIER:
                ids = events.words(i)[:n]
                if kind is Kind.FREE and flags & 3 == FreeOutcome.REFUSED:
                    continue
                second.counters[_NAMES[kind]] += n
                for block in ids:
                    self._block(kind, block, owner, flags, aux, t_ns)
            elif kind is Kind.POOL and not flags & HOST_TIER:
                self._audit(events.words(i))
            else:
                self._sequence(kind, owner, aux, t_ns)
                if kind is Kind.WAIT:
                    self._stand_behind(owner, events.words(i)[0] if n else 0, t_ns)
            second.active_at_end = self.num_active

    def _second(self, t_ns: int) -> PlainSecond:
        return self.seconds[t_ns - (t_ns + self._offset) % SECOND_NS]

    def _slices(self, since_ns: int, t_ns: int) -> Iterator[tuple[PlainSecond, int]]:
        while since_ns < t_ns:
            end = min(since_ns - (since_ns + self._offset) % SECOND_NS + SECOND_NS, t_ns)
            yield self._second(since_ns), end - since_ns
            since_ns = end

    def _pass_time(self, t_ns: int) -> None:
        if t_ns == self._t_ns:
            return
        active = self.num_active
        waiting = [self.sequences[owner].cause for owner in self._waiting]
        for second, passed in self._slices(self._t_ns, t_ns) if self._t_ns else ():
            second.active_ns += active * passed
            second.active_at_end = active
            for cause in waiting:
                second.waited_ns[CAUSE_LABELS[cause]] += passed
        self._t_ns = t_ns

    def _block(
        self, kind: Kind, block_id: int, owner: int, flags: int, aux: int, t_ns: int
    ) -> None:
        block = self.blocks[block_id]
        self.pay(block, t_ns)
        was_active = block.count > 0
        if kind is Kind.CACHE:
            block.hash_known = True
        elif kind is Kind.EVICT:
            block.count, block.state, block.hash_known = 0, int(BlockState.FREE), False
        elif kind is Kind.FREE:
            block.holders.remove(owner)
            block.count = aux
            if aux and owner == block.first_owner and block.outlives_since_ns is None:
                block.outlives_since_ns = t_ns
            kept = flags & 3 == FreeOutcome.TO_CACHE
            if aux == 0:
                block.state = int(BlockState.CACHED if kept else BlockState.FREE)
                block.hash_known &= kept
            self._hold(owner, -1)
        else:
            block.hash_known &= kind is Kind.SHARE
            block.holders.append(owner)
            block.count, block.state = aux, int(BlockState.ACTIVE)
            self._hold(owner, 1)
        self.num_active += (block.count > 0) - was_active
        if block.count > 0 and not was_active:
            block.active_since_ns, block.first_owner = t_ns, owner
        if was_active and block.count == 0:
            self.lifetimes_ns.append(t_ns - block.active_since_ns)
            if block.outlives_since_ns is not None:
                self.outlived_ns += t_ns - block.outlives_since_ns
                block.outlives_since_ns = None

    def _hold(self, owner: int, step: int) -> None:
        sequence = self.sequences[owner]
        sequence.held += step
        sequence.peak = max(sequence.peak, sequence.held)

    def pay(self, block: PlainBlock, t_ns: int) -> None:
        """Let each holder of a block pay its share up to a time."""
        for owner in block.holders:
            self.sequences[owner].block_ns += (t_ns - block.paid_at_ns) / len(block.holders)
        block.paid_at_ns = t_ns

    def pay_all(self) -> None:
        """Let everybody pay up to the newest record."""
        for block in self.blocks:
            self.pay(block, self._t_ns)

    def _audit(self, words: list[int]) -> None:
        states = [block.state for block in self.blocks]
        mine = [len(states), *(states.count(s) for s in (BlockState.ACTIVE, BlockState.CACHED))]
        self.audits_failed += words[:3] != mine

    def _sequence(self, kind: Kind, owner: int, aux: int, t_ns: int) -> None:
        if kind is Kind.ARRIVE:
            self.sequences[owner] = PlainSequence(t_ns, int(WaitCause.ENGINE_BUSY), t_ns)
            self.sequences[owner].request = owner
        elif kind is Kind.FORK:
            self.sequences[owner] = PlainSequence(t_ns, admitted=True)
            self.sequences[owner].request = self.sequences[aux].request
        sequence = self.sequences.get(owner)
        if sequence is None:
            return
        if kind in (Kind.WAIT, Kind.ADMIT, Kind.RESUME, Kind.FINISH, Kind.REJECT):
            self._settle(sequence, t_ns)
            sequence.cause = aux if kind is Kind.WAIT else 0
            sequence.admitted |= kind is Kind.ADMIT
            if kind is not Kind.WAIT:
                self._stand_behind(owner, 0, t_ns)
            if kind in (Kind.FINISH, Kind.REJECT):
                self._end(owner, sequence, kind, t_ns)
        elif kind is Kind.PREEMPT:
            sequence.cause, sequence.since_ns = int(WaitCause.ENGINE_BUSY), t_ns
        if sequence.cause:
            self._waiting.add(owner)
        else:
            self._waiting.discard(owner)

    def _end(self, owner: int, sequence: PlainSequence, kind: Kind, t_ns: int) -> None:
        for number, other in self.sequences.items():
            if other.blocker == owner:
                self._stand_behind(number, owner, t_ns)
        sequence.ended = True
        lives = any(s.request == sequence.request and not s.ended for s in self.sequences.values())
        self.requests_ended += kind is Kind.FINISH and not lives

    def _stand_behind(self, owner: int, blocker: int, t_ns: int) -> None:
        """Book the wait behind a blocker that lives; another may be named from here on."""
        sequence = self.sequences[owner]
        before = self.sequences.get(sequence.blocker)
        if before is not None and not before.ended:
            before.blocked_others_ns += t_ns - sequence.blocker_since_ns
        sequence.blocker, sequence.blocker_since_ns = blocker, t_ns

    def _settle(self, sequence: PlainSequence, t_ns: int) -> None:
        if not sequence.cause:
            return
        passed = t_ns - sequence.since_ns
        sequence.since_ns = t_ns
        if sequence.admitted:
            sequence.after_preempt_ns += passed
        else:
            sequence.waits[CAUSE_LABELS[sequence.cause]] += passed

    def settle_all(self) -> None:
        """Account every wait up to the newest record."""
        for sequence in self.sequences.values():
            self._settle(sequence, self._t_ns)
