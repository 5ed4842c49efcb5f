"""Take over a keyframe's state: at the start of a stream, after a gap, or when an audit failed."""

from collections.abc import Collection
from typing import Final

import numpy as np

from agent.ledger.block_ledger import ACTIVE, CACHED, FREE, BlockLedger
from agent.ledger.event_columns import Ints
from agent.ledger.owner_ledger import OwnerLedger
from agent.ledger.request_groups import num_requests, regroup
from agent.ledger.request_ledger import RequestLedger
from agent.ledger.request_state import WAITING_STATES, RequestState, Tally
from agent.ledger.second_sums import WaitCurve
from agent.ledger.strays import held_by_some, strays_of
from kvpulse.events import SequenceState, WaitCause
from kvpulse.keyframe import NULL_ENTRY
from kvpulse.keyframe_decoder import KeyframeArrays

STATE_NAMES: Final[dict[int, str]] = {
    SequenceState.WAITING: "waiting",
    SequenceState.RUNNING: "running",
    SequenceState.PREEMPTED: "preempted",
    SequenceState.SWAPPED: "swapped",
}
_BUSY: Final = int(WaitCause.ENGINE_BUSY)


def adopt_blocks(blocks: BlockLedger, counts: Ints, keyframe: KeyframeArrays, t_ns: int) -> None:
    """Take over counts and states; what changed unseen gets this time, and no lifetime."""
    blocks.grow(max(len(counts), blocks.total))
    size = len(blocks.count)
    new_count = np.zeros(size, np.int64)
    new_count[: len(counts)] = counts
    state = np.where(new_count > 0, ACTIVE, FREE).astype(np.uint8)
    if not blocks.host:
        cached = keyframe.cached_blocks[keyframe.cached_blocks < size]
        state[cached] = np.where(new_count[cached] > 0, ACTIVE, CACHED)
        blocks.hash_known[:] = False
        blocks.hash_known[keyframe.hashed_blocks[keyframe.hashed_blocks < size]] = True
    changed = (new_count != blocks.count) | (state != blocks.state)
    blocks.since_ns[changed] = t_ns
    # Since when it is active is known only for a block that nothing can have happened to.
    blocks.active_since_ns[:] = -1
    blocks.outlived.forget()
    blocks.count, blocks.state = new_count, state
    blocks.paid[:] = 0.0
    blocks.paid_at_ns[:] = t_ns
    blocks.active = int(np.count_nonzero(new_count))
    blocks.cached = int(np.count_nonzero(state == CACHED))
    blocks.sum_counts = int(new_count.sum())
    blocks.checksum = np.uint64((blocks.weights * new_count.astype(np.uint64)).sum())
    blocks.reset_totals()


def adopt_owners(
    old: OwnerLedger, blocks: BlockLedger, keyframe: KeyframeArrays, ended: Collection[int]
) -> OwnerLedger:
    """Return who holds what as the keyframe states it; peaks known before are kept.

    What no live sequence holds is held by those that had `ended` with it, or by `UNKNOWN_OWNER`.
    """
    owners = OwnerLedger()
    entries = keyframe.sequences["table_entries"].astype(np.int64)
    numbers = keyframe.sequences["owner"].tolist()
    slots = np.array([owners.slot_of(number) for number in numbers], np.int64)
    slot = np.repeat(slots, entries)
    block = keyframe.tables.astype(np.int64)
    real = (block != NULL_ENTRY) & (block < len(blocks.count))
    slot, block = slot[real], block[real]
    tenants = np.repeat(keyframe.sequences["tenant"].astype(np.int64), entries)[real]
    blocks.tenant[block[::-1]] = tenants[::-1]
    owners.references.replace(slot, block)
    _adopt_strays(owners, old, blocks, set(ended) - set(numbers))
    owners.held += np.bincount(owners.references.slot, minlength=len(owners.held))
    owners.peak[:] = owners.held
    for number, its_slot in zip(numbers, slots.tolist(), strict=True):
        before = old.slots.get(number)
        if before is not None:
            owners.peak[its_slot] = max(owners.peak[its_slot], old.peak[before])
            owners.first_block_ns[its_slot] = old.first_block_ns[before]
        elif owners.held[its_slot]:
            owners.first_block_ns[its_slot] = 1  # it had one, who knows when
    return owners


def _adopt_strays(
    owners: OwnerLedger, old: OwnerLedger, blocks: BlockLedger, ended: set[int]
) -> None:
    references = owners.references
    held = np.bincount(references.block, minlength=len(blocks.count))
    old.references.settle(old.held)
    before = held_by_some(old.references, old.owner, ended)
    strays = strays_of(blocks.count, held, before)
    slots = np.array([owners.slot_of(owner) for owner in strays.owner.tolist()], np.int64)
    references.replace(
        np.concatenate([references.slot, slots]), np.concatenate([references.block, strays.block])
    )
    for owner in np.unique(strays.owner).tolist():
        owners.first_block_ns[owners.slots[owner]] = 1  # it had one, who knows when
        owners.retire(owner)


def adopt_requests(requests: RequestLedger, keyframe: KeyframeArrays, t_ns: int) -> WaitCurve:
    """Take over the live sequences; return who waits for what from here on."""
    vanished = set(requests.live) - set(keyframe.sequences["owner"].tolist())
    for owner in vanished:
        state = requests.live.pop(owner)
        state.state, state.cause, state.spans_gap, state.waits_unknown = "unknown", 0, True, True
        requests.changed[owner] = state
    for row in keyframe.sequences:
        state = _adopted(requests, row, t_ns)
        requests.live[state.owner] = requests.changed[state.owner] = state
    live = requests.live.values()
    regroup(requests.live)
    requests.groups.recount(live)
    requests.blockers.recount(live, t_ns)
    requests.tally = Tally(base_live=len(requests.live), base_requests=num_requests(live))
    requests.num_swapped = sum(state.state == "swapped" for state in live)
    requests.num_running = sum(state.state == "running" for state in live)
    requests.num_waiting = sum(state.state in WAITING_STATES for state in live)
    requests.limit_blocks = sum(state.limit_blocks for state in live)
    curve = WaitCurve()
    curve.jump(t_ns)
    for state in live:
        if state.cause:
            curve.waiting[state.cause] += 1
            curve.after += state.state != "waiting"
    return curve


def _adopted(requests: RequestLedger, row: np.void, t_ns: int) -> RequestState:
    owner, name = int(row["owner"]), STATE_NAMES.get(int(row["state"]), "unknown")
    state = requests.live.get(owner)
    if state is None:
        arrived_ns = min(int(row["arrived_ns"]), t_ns)  # a damaged one may be any
        state = RequestState(owner, int(row["tenant"]), name, arrived_ns)
        for field in ("prompt_tokens", "max_tokens", "priority", "tier", "parent", "retry"):
            setattr(state, field, int(row[field]))
        state.limit_blocks = requests.limit_of(state)
    state.state = name
    state.preemptions = int(row["preemptions"])
    state.first_token_ns = min(int(row["first_token_ns"]), t_ns)
    state.spans_gap = state.waits_unknown = True
    state.paid_ns = state.sharing = None
    state.cause = (int(row["cause"]) or _BUSY) if name in WAITING_STATES else 0
    if state.cause >= len(state.waits):
        state.cause = _BUSY
    state.blocker = int(row["blocker"]) if state.cause else 0
    state.cause_since_ns, state.shown_since_ns = t_ns, min(int(row["since_ns"]), t_ns)
    return state
