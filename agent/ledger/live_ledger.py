"""What the exporter and the health check see of the ledger."""

from agent.head_of_line import HeadOfLine, Waiter, head_of_line, needed_blocks
from agent.ledger.arrival import PRIORITY_LABELS, priority_label
from agent.ledger.clock_watch import ClockWatch
from agent.ledger.core import LedgerCore
from agent.ledger.delta import LawFailure, LiveState, WaitNow
from agent.ledger.request_state import CAUSE_LABELS
from agent.rollups.scalars import COUNTERS, LABELLED, LATENCIES
from kvpulse.events import WaitCause


def live_state(core: LedgerCore, recent: tuple[LawFailure, ...], clocks: ClockWatch) -> LiveState:
    """Return what a ledger knows now; the values stay as they are when it goes on."""
    totals = core.totals
    failed = totals.audits_failed + totals.laws_failed
    return LiveState(
        t_ns=core.t_ns,
        wall_offset_ns=core.wall_offset_ns,
        shape=core.shape,
        gauges=dict(core.gauges),
        counters=dict(zip(COUNTERS, totals.counters.tolist(), strict=True)),
        labelled=_labelled(core),
        histograms={
            name: histogram.copy()
            for name, histogram in zip(LATENCIES, core.latencies.totals, strict=True)
        },
        waits=_waits(core),
        stored=tuple(totals.stored.tolist()),
        lost=tuple(totals.lost.tolist()),
        unknown=totals.unknown,
        audits_passed=totals.audits_passed,
        audits_failed=totals.audits_failed,
        laws_failed=totals.laws_failed,
        last_failures=recent,
        balanced=failed == 0 if core.known else None,
        leaks=tuple(core.leaks.open.values()),
        held=core.leaks.held(),
        refused_frees=int(totals.counters[COUNTERS.index("refused_frees")]),
        host_active_blocks=core.host.active if core.shape.host_blocks else None,
        last_step=core.last_step,
        last_step_ns=core.last_step_ns or None,
        num_gaps=totals.gaps,
        largest_free_run=core.largest_free_run,
        config=core.config,
        tenants=dict(core.strings),
        waiting_since_ns=_waiting_since_ns(core),
        head_of_line=_head_of_line(core),
        host_total_blocks=core.host.total if core.shape.host_blocks else None,
        host_unreleased=core.host_holders.of_ended(core.requests.live),
        waiting_by_priority=_waiting_by_priority(core),
        largest_blocks_needed=_largest_blocks_needed(core),
        open_outlived_block_ns=core.blocks.outlived.open_ns(core.t_ns),
        broken_laws=tuple(core.laws.open.values()),
        num_clock_steps=clocks.num_steps,
        clock_step=clocks.newest,
    )


def _labelled(core: LedgerCore) -> dict[str, dict[str, int]]:
    families: dict[str, dict[str, int]] = {family.name: {} for family in LABELLED}
    for (family, label), value in core.labelled.totals.items():
        name = label if isinstance(label, str) else core.tenant_label(label)
        families[family][name] = families[family].get(name, 0) + value
    return families


def _waits(core: LedgerCore) -> dict[str, WaitNow]:
    oldest: dict[int, int] = {}
    for state in core.requests.live.values():
        if state.cause:
            since = oldest.get(state.cause, state.shown_since_ns)
            oldest[state.cause] = min(since, state.shown_since_ns)
    return {
        CAUSE_LABELS[cause]: WaitNow(core.curve.waiting[cause], oldest.get(cause))
        for cause in WaitCause
    }


def _waiting_since_ns(core: LedgerCore) -> int | None:
    """Return when the longest wait began, whatever its causes since: at arrival or preemption."""
    begun = (
        (state.arrived_ns if state.state == "waiting" else state.preempt_step_ns)
        or state.shown_since_ns
        for state in core.requests.live.values()
        if state.cause
    )
    return min(begun, default=None)


def _largest_blocks_needed(core: LedgerCore) -> int | None:
    if not core.known:
        return None
    held_by, live = core.owners.held_by, core.requests.live.values()
    needs = (state.limit_blocks - held_by(state.owner) for state in live if state.limit_blocks)
    return max(0, max(needs, default=0))


def _head_of_line(core: LedgerCore) -> HeadOfLine | None:
    if not any(core.requests.blockers.behind.values()):
        return None
    waiting = [state for state in core.requests.live.values() if state.cause]
    size, groups = core.requests.block_size, core.requests.kv_groups
    return head_of_line(
        [
            Waiter(
                owner=state.owner,
                arrived_ns=state.arrived_ns,
                cause=CAUSE_LABELS[state.cause],
                blocker=state.blocker,
                needed_blocks=needed_blocks(state.needed_blocks, state.prompt_tokens, size, groups),
            )
            for state in waiting
        ],
        available_blocks=core.blocks.free + core.blocks.cached,
        booked_ns=core.requests.blockers.booked(core.requests.live, core.t_ns),
        now_ns=core.t_ns,
    )


def _waiting_by_priority(core: LedgerCore) -> dict[str, int]:
    waiting = dict.fromkeys(PRIORITY_LABELS, 0)
    for state in core.requests.live.values():
        if state.cause:
            waiting[priority_label(state.priority)] += 1
    return waiting
