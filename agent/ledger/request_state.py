"""One sequence as the ledger knows it, and the row that is made of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from agent.kv_groups import StatedGroups
from agent.ledger.delta import RequestRow
from agent.ledger.owner_ledger import OwnerLedger, Sharing
from kvpulse.events import NOT_MEASURED, WAIT_CLASSES, WaitCause, WaitClass

NUM_CAUSES: Final = max(WaitCause) + 1  # index 0 is unused
CAUSE_LABELS: Final = tuple(
    WaitCause(c).name.lower() if c in set(WaitCause) else "unknown" for c in range(NUM_CAUSES)
)
WAITING_STATES: Final = frozenset({"waiting", "preempted", "swapped"})
_CAUSES_OF: Final = {
    cls: tuple(int(c) for c, its in WAIT_CLASSES.items() if its is cls) for cls in WaitClass
}
_CLASS_ORDER: Final = (
    WaitClass.POOL,
    WaitClass.SCHEDULER,
    WaitClass.QUOTA,
    WaitClass.TRANSFER,
)
_CLASS_PLACE: Final = tuple(
    _CLASS_ORDER.index(WAIT_CLASSES[WaitCause(c)]) if c in set(WaitCause) else 0
    for c in range(NUM_CAUSES)
)


@dataclass(slots=True)
class RequestState:
    """A live sequence; times are engine ns, 0 for not yet."""

    owner: int
    tenant: int
    state: str
    arrived_ns: int
    parent: int = 0
    admitted_ns: int = 0
    first_token_ns: int = 0
    ended_ns: int = 0
    end_reason: str | None = None
    reject_reason: str | None = None
    prompt_tokens: int | None = None
    max_tokens: int | None = None
    asked_max_tokens: int | None = None
    output_tokens: int | None = None
    recomputed_tokens: int | None = None
    priority: int = 0
    tier: int = 0
    retry: int = 0
    deadline_ns: int = 0
    request_hash: int = 0
    limit_blocks: int = 0  # what it may hold at its token limit
    cause: int = 0  # why it waits; 0: it does not
    cause_since_ns: int = 0  # accounted up to here
    shown_since_ns: int = 0  # when it began to wait for this cause
    blocker: int = 0
    waits: list[int] = field(default_factory=lambda: [0] * NUM_CAUSES)
    after_preempt_ns: int = 0
    preemptions: int = 0
    preempted_by: list[int] = field(default_factory=list)
    preempt_step_ns: int = 0  # the last step before it was preempted
    prefix_hit_tokens: int = 0
    alloc_failures: dict[str, int] = field(default_factory=dict)
    sharing: Sharing | None = None  # as last worked out
    paid_ns: float | None = None  # block-ns up to then
    waits_unknown: bool = False
    spans_gap: bool = False
    forked: bool = False  # split off another sequence; it never arrived
    group: int = 0  # first sequence of a request that forked; 0: it did not
    begun_ns: int = 0  # when its request arrived
    frontend_ns: int | None = None
    blocked_others_ns: int = 0
    needed_blocks: int | None = None
    tokens_lost: int = 0
    tokens_found: int = 0
    blocks_kept: int = 0
    swaps: int = 0

    def settle(self, t_ns: int) -> int:
        """Account the wait up to a time to its cause; return the ns that passed."""
        passed = t_ns - self.cause_since_ns
        if self.state == "waiting":
            self.waits[self.cause] += passed
        else:
            self.after_preempt_ns += passed
        self.cause_since_ns = t_ns
        return passed

    def waits_at(self, t_ns: int) -> list[int]:
        """Return waits by cause before the first admission, the present one up to a time."""
        waits = list(self.waits)
        if self.cause and self.state == "waiting":
            waits[self.cause] += t_ns - self.cause_since_ns
        return waits

    def after_preempt_at(self, t_ns: int) -> int:
        """Return the wait after preemptions, the present one up to a time."""
        if self.cause and self.state != "waiting":
            return self.after_preempt_ns + t_ns - self.cause_since_ns
        return self.after_preempt_ns

    def class_ns(self, waits: list[int], wait_class: WaitClass) -> int:
        """Return the part of waits by cause that belongs to a class."""
        return sum(waits[cause] for cause in _CAUSES_OF[wait_class])


@dataclass(slots=True)
class Tally:
    """Totals since the run (or the last gap) began, for laws 4 and 6."""

    base_live: int = 0
    arrived: int = 0
    forked: int = 0
    finished: int = 0
    rejected: int = 0
    base_requests: int = 0
    requests_ended: int = 0  # each once, however many sequences it had
    queue_ns: int = 0  # time in the queue of sequences that left it
    queue_waits_ns: int = 0  # the sum of their waits by cause
    waited_ns: int = 0  # time waited by all, after preemptions too, in waits that are over


def label_of(codes: type, code: int) -> str:
    """Return a code's name as a label; codes of a later version are shown by number."""
    try:
        return str(codes(code).name).lower()
    except ValueError:
        return f"unknown_{code}"


def known(tokens: int) -> int | None:
    """Return a payload word as a value; None where nobody measured it."""
    return None if tokens == NOT_MEASURED else tokens


@dataclass(frozen=True, slots=True)
class RowMaker:
    """What is needed beside a sequence's own state to make its row."""

    owners: OwnerLedger
    block_size: int
    tenants: dict[int, str]
    t_ns: int
    host_held: Mapping[int, int] = field(default_factory=dict)
    kv_groups: StatedGroups = field(default_factory=StatedGroups)

    def row(self, state: RequestState) -> RequestRow:
        """Return a sequence's row as known now."""
        slot = self.owners.slots.get(state.owner)
        peak = int(self.owners.peak[slot]) if slot is not None else 0
        sharing = self._sharing(state, slot)
        waits = None if state.waits_unknown else state.waits_at(self.t_ns)
        classes = _class_columns(waits)
        first_block = int(self.owners.first_block_ns[slot]) if slot is not None else 0
        return RequestRow(
            owner=state.owner,
            parent=state.parent,
            tenant=self.tenants.get(state.tenant),
            state=state.state,
            arrived_ns=state.arrived_ns or None,
            admitted_ns=state.admitted_ns or None,
            first_token_ns=state.first_token_ns or None,
            ended_ns=state.ended_ns or None,
            end_reason=state.end_reason,
            reject_reason=state.reject_reason,
            prompt_tokens=state.prompt_tokens,
            max_tokens=state.max_tokens,
            asked_max_tokens=state.asked_max_tokens,
            output_tokens=state.output_tokens,
            priority=state.priority,
            tier=state.tier,
            retry=state.retry,
            deadline_ns=state.deadline_ns or None,
            request_hash=state.request_hash,
            logical_blocks=sharing.logical if sharing else None,
            physical_blocks=sharing.physical if sharing else None,
            shared_within=sharing.within if sharing else None,
            shared_across=sharing.across if sharing else None,
            peak_blocks=peak,
            filled_slots=self._filled(state, peak),
            block_seconds=self._block_seconds(state, slot),
            wait_ns=_by_label(waits),
            wait_pool_ns=classes[0],
            wait_scheduler_ns=classes[1],
            wait_quota_ns=classes[2],
            wait_transfer_ns=classes[3],
            wait_after_preempt_ns=None
            if state.waits_unknown
            else state.after_preempt_at(self.t_ns),
            preemptions=state.preemptions,
            preempted_by=tuple(state.preempted_by),
            recomputed_tokens=state.recomputed_tokens,
            prefix_hit_tokens=state.prefix_hit_tokens,
            alloc_failures=dict(state.alloc_failures),
            time_to_first_block_ns=first_block - state.arrived_ns
            if first_block and state.arrived_ns and not state.spans_gap
            else None,
            spans_gap=state.spans_gap,
            frontend_ns=state.frontend_ns,
            wait_cause=CAUSE_LABELS[state.cause] if state.cause else None,
            blocker=state.blocker or None,
            blocked_others_ns=state.blocked_others_ns,
            needed_blocks=state.needed_blocks,
            tokens_lost=state.tokens_lost,
            tokens_found=state.tokens_found,
            blocks_kept=state.blocks_kept,
            swaps=state.swaps,
            host_blocks=self.host_held.get(state.owner, 0),
        )

    def _sharing(self, state: RequestState, slot: int | None) -> Sharing | None:
        """Live: as last worked out. Ended: at its best, from its own records."""
        if not state.ended_ns:
            return state.sharing
        if slot is None:
            return None if state.spans_gap else Sharing(0, 0, 0, 0)
        if state.parent or (state.sharing and state.sharing.within):
            # Which of its shared blocks its own request held besides is known from the reference
            # set alone: as last worked out while it lived.
            return state.sharing
        peak = int(self.owners.peak[slot])
        across = int(self.owners.shared_most[slot] - self.owners.shared_least[slot])
        return Sharing(peak, peak, 0, min(across, peak))

    def _filled(self, state: RequestState, peak: int) -> int | None:
        if not state.ended_ns or state.prompt_tokens is None or state.output_tokens is None:
            return None
        slots = self.kv_groups.total * (state.prompt_tokens + state.output_tokens)
        return min(slots, peak * self.block_size)

    def _block_seconds(self, state: RequestState, slot: int | None) -> float | None:
        if state.spans_gap:
            return None
        if slot is None:
            return 0.0
        if state.ended_ns and not self.owners.held[slot]:
            return float(self.owners.paid[slot]) / 1e9
        return None if state.paid_ns is None else state.paid_ns / 1e9


def _by_label(waits: list[int] | None) -> dict[str, int] | None:
    if waits is None:
        return None
    return {CAUSE_LABELS[cause]: ns for cause, ns in enumerate(waits) if ns}


def _class_columns(waits: list[int] | None) -> tuple[int | None, ...]:
    """Return pool, scheduler, quota and transfer waits."""
    if waits is None:
        return (None,) * len(_CLASS_ORDER)
    columns = [0] * len(_CLASS_ORDER)
    for place, waited in zip(_CLASS_PLACE, waits, strict=True):
        columns[place] += waited
    return tuple(columns)
