"""The life of each sequence, from arrive to finish: the few records that a loop goes through.

A sequence that waits has one cause; the wait is accounted to the nanosecond: to the sequence when
it changes, and to the second in which it passes (`second_sums`). Law 6 compares the two.
"""

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final

import numpy as np

from agent.kv_groups import StatedGroups
from agent.ledger.arrival import arrived, forked, priority_label
from agent.ledger.blockers import Blockers
from agent.ledger.delta import LawFailure
from agent.ledger.event_columns import EventColumns, Ints
from agent.ledger.loop_records import BUSY, LOOP_KINDS, WAIT, Act, acts_of, bursts_of, waits_of
from agent.ledger.request_groups import RequestGroups
from agent.ledger.request_state import WAITING_STATES, RequestState, Tally, label_of
from agent.ledger.second_sums import COUNTER, Gauges, SecondSums
from agent.rollups.labelled import tenant_key
from kvpulse.events import (
    ArriveWord,
    FailWord,
    FinishReason,
    FinishWord,
    Kind,
    PreemptMode,
    PreemptWord,
    RejectReason,
    WaitCause,
    WaitClass,
)

_COMPLETED: Final = frozenset({int(FinishReason.STOP), int(FinishReason.LENGTH)})


class RequestLedger:
    """Every live sequence, and the ended ones whose rows were not handed out yet."""

    def __init__(self, block_size: int) -> None:
        self.block_size = max(block_size, 1)
        self.live: dict[int, RequestState] = {}
        self.changed: dict[int, RequestState] = {}
        self.ended: list[RequestState] = []  # since the last look for leaks
        self.tally = Tally()
        self.num_running = self.num_waiting = self.limit_blocks = self.num_swapped = 0
        self.groups, self.kv_groups = RequestGroups(), StatedGroups()
        self.blockers = Blockers()
        self.failures: list[LawFailure] = []
        self._sums: SecondSums
        self._events: EventColumns
        self._step_ns: Ints
        self._last_step_ns = 0
        self._handlers: dict[int, Callable[[Act], None]] = {
            Kind.ALLOCATE_FAILED: self._allocate_failed,
            Kind.ARRIVE: self._arrive,
            Kind.ADMIT: self._admit,
            Kind.REJECT: self._reject,
            Kind.PREFIX_HIT: self._prefix_hit,
            Kind.PREEMPT: self._preempt,
            Kind.RESUME: self._resume,
            Kind.FORK: self._fork,
            Kind.FIRST_TOKEN: self._first_token,
            Kind.FINISH: self._finish,
        }

    def apply(self, events: EventColumns, sums: SecondSums, last_step_ns: int) -> None:
        """Follow a stretch; `last_step_ns` is the last step before it."""
        self._sums, self._events, self._last_step_ns = sums, events, last_step_ns
        self._step_ns = events.t_ns[events.is_kind(Kind.STEP)]
        picked = np.flatnonzero(LOOP_KINDS[events.kind])
        bursts = bursts_of(events, picked)
        waits, acts = waits_of(events, picked), acts_of(events, picked)
        handlers, seconds = self._handlers, sums.grid.index[bursts.record].tolist()
        rows = zip(bursts.kind.tolist(), bursts.t_ns.tolist(), bursts.size.tolist(), strict=True)
        for second, (kind, t_ns, size) in zip(seconds, rows, strict=True):
            if second != sums.second:
                sums.advance(second, self._gauges())
            if kind == WAIT:
                self._waits(islice(waits, size), t_ns)
            else:
                handlers[kind](next(acts))
        sums.advance(len(sums.grid) - 1, self._gauges())
        sums.close_second(self._gauges())

    def _gauges(self) -> Gauges:
        return Gauges(self.num_running, self.num_waiting, self.limit_blocks, self.num_swapped)

    def _words(self, act: Act, most: int) -> list[int]:
        """Return a record's first words, with zeros for those that it does not have."""
        start = act.first - self._events.lane_base
        end = start + min(act.n, most)
        words: list[int] = self._events.lane[start:end].tolist() if act.n > 1 else [act.first]
        return words + [0] * (most - len(words))

    def _known(self, act: Act) -> RequestState:
        state = self.live.get(act.owner) or self._unseen(act.owner, act.tenant)
        self.changed[act.owner] = state
        return state

    def _unseen(self, owner: int, tenant: int = 0) -> RequestState:
        """Return a sequence met for the first time: it began before what was read."""
        state = RequestState(owner, tenant, "unknown", 0)
        state.spans_gap = state.waits_unknown = True
        self.live[owner] = self.changed[owner] = state
        self.tally.base_live += 1
        self.tally.base_requests += 1
        return state

    def limit_of(self, state: RequestState) -> int:
        """Return how many blocks a sequence may come to hold."""
        return self.kv_groups.most_blocks(state.prompt_tokens, state.max_tokens, self.block_size)

    def _begin_wait(self, state: RequestState, name: str, t_ns: int) -> None:
        state.state, state.cause = name, BUSY
        state.cause_since_ns = state.shown_since_ns = t_ns
        self.num_waiting += 1
        self._sums.enter(BUSY, t_ns)
        if name != "waiting":
            self.num_swapped += name == "swapped"
            self._sums.change_after(1, t_ns)

    def _settle(self, state: RequestState, t_ns: int) -> None:
        self.tally.waited_ns += state.settle(t_ns)

    def _stop(self, state: RequestState, t_ns: int) -> None:
        """Take a sequence out of whichever state it is in."""
        if state.state in WAITING_STATES:
            self._settle(state, t_ns)
            self._sums.leave(state.cause, t_ns)
            if state.state != "waiting":
                self._sums.change_after(-1, t_ns)
            self.num_waiting -= 1
            self.num_swapped -= state.state == "swapped"
            if state.blocker:
                self.blockers.move(self.live, state.blocker, 0, 1, t_ns)
            state.cause, state.blocker, state.needed_blocks = 0, 0, None
        elif state.state == "running":
            self.num_running -= 1

    def _leave_queue(self, state: RequestState, t_ns: int) -> None:
        """Sample the queue time of a sequence that waited for its first admission until now."""
        if state.waits_unknown:
            return
        queued = t_ns - state.arrived_ns
        by_cause = sum(state.waits)
        self.tally.queue_ns += queued
        self.tally.queue_waits_ns += by_cause
        if by_cause != queued:
            sides = (f"queued {queued} ns", f"causes add up to {by_cause} ns")
            self.failures.append(LawFailure.of_sequence("waits_add_up", state.owner, t_ns, sides))
        sums = self._sums
        sums.sample("queue", queued)
        sums.sample("pool_wait", state.class_ns(state.waits, WaitClass.POOL))
        sums.sample("scheduler_wait", state.class_ns(state.waits, WaitClass.SCHEDULER))

    def _end(self, state: RequestState, t_ns: int) -> None:
        was_queued = state.state == "waiting"
        self._stop(state, t_ns)
        if was_queued and t_ns > state.arrived_ns:
            self._leave_queue(state, t_ns)
        self.blockers.end(self.live, state.owner, t_ns)
        state.ended_ns = t_ns
        self.limit_blocks -= state.limit_blocks
        del self.live[state.owner]
        self.ended.append(state)

    def _arrive(self, act: Act) -> None:
        state = RequestState(act.owner, act.tenant, "waiting", act.t_ns, begun_ns=act.t_ns)
        arrived(state, self._words(act, ArriveWord.NUM_HASHES), act.aux)  # content hashes follow
        state.limit_blocks = self.limit_of(state)
        self.limit_blocks += state.limit_blocks
        self.live[act.owner] = self.changed[act.owner] = state
        self.tally.arrived += 1
        sums = self._sums
        sums.count(COUNTER["arrived"])
        sums.label("arrived_priority", priority_label(state.priority))
        if state.retry:
            sums.count(COUNTER["retries"])
        if state.frontend_ns is not None:
            sums.sample("frontend", state.frontend_ns)
        self._begin_wait(state, "waiting", act.t_ns)

    def _waits(self, waits: Iterable[tuple[int, int, int]], t_ns: int) -> None:
        """Follow `wait` records of one moment: so many that they change no row at once."""
        self._sums.settle(t_ns)
        live, waiting = self.live, self._sums.curve.waiting
        waited_ns = 0
        move, stood, stands, moved = self.blockers.move, 0, 0, 0
        for owner, cause, blocker in waits:
            state = live.get(owner) or self._unseen(owner)
            if blocker != state.blocker:
                if state.blocker != stood or blocker != stands:
                    move(live, stood, stands, moved, t_ns)
                    stood, stands, moved = state.blocker, blocker, 0
                state.blocker = blocker
                moved += 1
            before = state.cause
            if cause == before:
                continue
            if not before:
                said = ("waiting", f"{state.state}, states cause {cause}")
                self.failures.append(LawFailure.of_sequence("wait_of_waiting", owner, t_ns, said))
                continue
            passed = t_ns - state.cause_since_ns
            waited_ns += passed
            if state.state == "waiting":
                state.waits[before] += passed
            else:
                state.after_preempt_ns += passed
            waiting[before] -= 1
            waiting[cause] += 1
            state.cause = cause
            state.cause_since_ns = state.shown_since_ns = t_ns
        move(live, stood, stands, moved, t_ns)
        self.tally.waited_ns += waited_ns

    def _admit(self, act: Act) -> None:
        state = self._known(act)
        self._stop(state, act.t_ns)
        if state.state == "waiting":
            self._leave_queue(state, act.t_ns)
            state.admitted_ns = act.t_ns
        state.state = "running"
        self.num_running += 1
        self._sums.count(COUNTER["admitted"])

    def _reject(self, act: Act) -> None:
        state = self._known(act)
        self._end(state, act.t_ns)
        self.groups.leave(state)
        state.state, state.end_reason = "rejected", "rejected"
        state.reject_reason = label_of(RejectReason, act.aux)
        self.tally.rejected += 1
        self._sums.count(COUNTER["rejected"])
        if state.retry:
            self._sums.count(COUNTER["rejected_retries"])
        self._sums.label("rejected", state.reject_reason)

    def _prefix_hit(self, act: Act) -> None:
        if act.flags & 1:
            return  # `resume` states what was found again
        state = self._known(act)
        state.prefix_hit_tokens += act.aux
        self._sums.count(COUNTER["prefix_hit_tokens"], act.aux)
        self._sums.count(COUNTER["prefix_queried_tokens"], act.first if act.n else 0)

    def _preempt(self, act: Act) -> None:
        state = self._known(act)
        words = self._words(act, len(PreemptWord))
        self._stop(state, act.t_ns)
        self._begin_wait(
            state, "swapped" if act.flags & 3 == PreemptMode.SWAP else "preempted", act.t_ns
        )
        state.preemptions += 1
        state.preempted_by.append(act.aux)
        lost, freed, kept = words
        state.tokens_lost += lost
        state.blocks_kept += kept
        before = int(np.searchsorted(self._step_ns, act.t_ns, "right"))
        state.preempt_step_ns = int(self._step_ns[before - 1]) if before else self._last_step_ns
        sums = self._sums
        sums.count(COUNTER["preempted"])
        sums.count(COUNTER["tokens_lost"], lost)
        sums.count(COUNTER["preempt_freed_blocks"], freed)
        sums.count(COUNTER["preempt_kept_blocks"], kept)
        if state.state == "swapped":
            state.swaps += 1
            sums.count(COUNTER["preempted_by_swap"])

    def _resume(self, act: Act) -> None:
        state = self._known(act)
        self._stop(state, act.t_ns)
        found = 0 if state.state == "swapped" else act.aux  # in host memory nothing was lost
        state.state = "running"
        self.num_running += 1
        state.tokens_found += found
        self._sums.count(COUNTER["resumed"])
        self._sums.count(COUNTER["resume_hit_tokens"], found)

    def _fork(self, act: Act) -> None:
        parent = self.live.get(act.aux)
        state = RequestState(act.owner, act.tenant, "running", act.t_ns, forked=True)
        forked(state, parent, act.aux)
        self.tally.base_requests += self.groups.fork(state, parent)
        self.limit_blocks += state.limit_blocks
        self.live[act.owner] = self.changed[act.owner] = state
        self.num_running += 1
        self.tally.forked += 1
        self._sums.count(COUNTER["forked"])

    def _first_token(self, act: Act) -> None:
        state = self._known(act)
        if act.flags & 1:
            if state.preempt_step_ns:
                self._sums.sample("inter_token", act.t_ns - state.preempt_step_ns)
            return
        state.first_token_ns = act.t_ns
        if state.forked or (state.spans_gap and not state.arrived_ns):
            return  # a request has one first token, that of its first sequence
        self._sums.sample("ttft", act.t_ns - state.arrived_ns)
        self._sums.sample("prefill", act.t_ns - state.admitted_ns)

    def _allocate_failed(self, act: Act) -> None:
        cause = label_of(WaitCause, act.aux)
        self._sums.count(COUNTER["allocate_failures"])
        self._sums.label("allocate_failed", cause)
        if act.owner in self.live:
            failures = self._known(act).alloc_failures
            failures[cause] = failures.get(cause, 0) + 1
            state = self.live[act.owner]
            if state.state in WAITING_STATES:
                state.needed_blocks = self._words(act, 1)[FailWord.NEEDED]

    def _finish(self, act: Act) -> None:
        state = self._known(act)
        words = self._words(act, len(FinishWord))
        self._end(state, act.t_ns)
        state.prompt_tokens = words[FinishWord.PROMPT_TOKENS]
        state.output_tokens = output = words[FinishWord.OUTPUT_TOKENS]
        state.recomputed_tokens = words[FinishWord.RECOMPUTED_TOKENS]
        state.end_reason = label_of(FinishReason, act.aux)
        state.state = "cancelled" if act.aux == FinishReason.CANCELLED else "finished"
        self.tally.finished += 1
        sums = self._sums
        sums.count(COUNTER["sequences_finished"])
        sums.count(COUNTER["recomputed_tokens"], state.recomputed_tokens)
        tokens = output if state.forked else state.prompt_tokens + output
        sums.label("tenant_tokens", tenant_key(state.tenant), tokens)
        if state.first_token_ns:
            decode = act.t_ns - state.first_token_ns
            sums.sample("decode", decode)
            if output > 1:
                sums.sample("tpot", decode // (output - 1))
        if self.groups.leave(state):
            self._end_request(state, act)

    def _end_request(self, state: RequestState, act: Act) -> None:
        """Count a request as ended, with the reason of the sequence that ended last."""
        self.tally.requests_ended += 1
        sums = self._sums
        sums.count(COUNTER["finished"])
        sums.count(COUNTER["cancelled"], int(act.aux == FinishReason.CANCELLED))
        sums.label("finished", state.end_reason or "")
        began_ns = state.begun_ns or (0 if state.forked else state.arrived_ns)
        if act.aux in _COMPLETED and began_ns:
            sums.sample("e2e", act.t_ns - began_ns)
