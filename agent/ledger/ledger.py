"""The ledger: what the agent knows of one run, and what of it is not stored yet.

`apply` follows batches, `take` hands out everything new for one transaction. After a restart
`resume` goes on from the newest stored snapshot and `replay` follows the chunks stored after it,
handing out nothing: the open intervals of every rollup come out as they were, so that every event
counts once.
"""

from dataclasses import replace
from itertools import pairwise
from typing import Any, Final, Self

import numpy as np

from agent.chunks.builder import ChunkBuilder
from agent.chunks.chunk import Stretch, decode_chunk
from agent.ledger.clock_watch import ClockWatch
from agent.ledger.core import LedgerCore
from agent.ledger.delta import (
    AuditResult,
    GapRow,
    Leak,
    LedgerDelta,
    LiveState,
    RequestRow,
    RunShape,
    Snapshot,
)
from agent.ledger.event_columns import columns_of, with_sound_times
from agent.ledger.intervals import SECOND_NS, interval_start
from agent.ledger.law_check import check_laws
from agent.ledger.live_ledger import live_state
from agent.ledger.owner_ledger import Sharing
from agent.ledger.request_state import RequestState, RowMaker
from agent.ledger.state import decode_state, encode_map_of, encode_state
from agent.rollups.scalars import TIERS
from kvpulse.errors import KeyframeDamagedError
from kvpulse.events import MAX_KINDS, Kind
from kvpulse.keyframe_decoder import decode_keyframe_arrays
from kvpulse.stream_values import Batch, Gap

SNAPSHOT_NS: Final = 60 * SECOND_NS
SNAPSHOT_EVENTS: Final = 200_000
# How often every live sequence's row is handed out; once a second if it did more than wait.
REFRESH_NS: Final = 5 * SECOND_NS
# An agent that takes so many events at once is catching up: rows of sequences that still live can
# wait, those of ended ones never do.
CATCHING_UP_EVENTS: Final = 16_384
CATCHING_UP_REFRESH_NS: Final = 30 * SECOND_NS
RECENT_FAILURES: Final = 10


class Ledger:
    """One run's ledger. No clock, no I/O."""

    def __init__(self, shape: RunShape) -> None:
        self.core = LedgerCore(shape)
        self.seq = 0  # records accounted for
        self._clocks = ClockWatch()
        self._chunks = ChunkBuilder()
        self._gaps: list[GapRow] = []
        self._has_offset = False
        self._taken_stored = np.zeros(MAX_KINDS, np.int64)
        self._taken_lost = np.zeros(MAX_KINDS, np.int64)
        self._taken_unknown = self._taken_passed = self._taken_failed = 0
        self._settled_ns = self._refreshed_ns = 0
        self._snapshot_ns = self._snapshot_events = 0
        self._snapshot_due = True
        self._recent: list[Any] = []
        self._closing = False
        self._taken_at = (-1, -1)  # engine time and record of the last take

    @classmethod
    def resume(cls, snapshot: Snapshot) -> Self:
        """Go on from a stored snapshot; `replay` the chunks stored after it, in order.

        Raises:
            StateError: It is damaged or of another version.
        """
        core, extra = decode_state(snapshot.state_blob, snapshot.map_blob)
        ledger = cls(core.shape)
        ledger.core, ledger.seq, ledger._has_offset = core, snapshot.seq, True
        ledger._settled_ns = ledger._snapshot_ns = core.t_ns
        ledger._refreshed_ns = extra["refreshed_ns"]
        ledger._clocks = ClockWatch.resume(extra, core.wall_offset_ns)
        ledger._snapshot_events = int(core.totals.stored.sum())
        ledger._snapshot_due = False
        ledger._forget_replayed()
        return ledger

    def replay(self, blob: bytes) -> None:
        """Follow a stored chunk without handing it out again.

        Raises:
            ChunkError: It is damaged or of another version.
        """
        stretch = decode_chunk(blob)
        self._follow(stretch, keyframes=False)
        self.seq = max(self.seq, stretch.seq0 + len(stretch.records))
        self._forget_replayed()

    def replayed_to(self, seq: int) -> None:
        """State the stored position that replaying led to: unknown kinds lie between chunks."""
        self.seq = seq

    def apply(self, batch: Batch) -> None:
        """Follow a batch of the journal."""
        if not self._has_offset:
            self.core.set_wall_offset(batch.clock.wall_ns - batch.clock.monotonic_ns)
            self._has_offset = True
        if batch.gap is not None:
            self._note_gap(batch.gap)
        self.core.totals.unknown += batch.unknown
        if batch.first_in_segment and self._clocks.meet_segment(batch.clock, self.core.t_ns):
            self._snapshot_due = True  # a segment's clocks are in no chunk
        self.seq = batch.position.seq
        if len(batch.records):
            records = with_sound_times(batch.records, not_before_ns=self.core.t_ns)
            stretch = Stretch(batch.seq0, records, batch.lane, batch.lane_base)
            self._chunks.add(stretch)
            self._follow(stretch, keyframes=True)

    def _note_gap(self, gap: Gap) -> None:
        self._chunks.cut()
        core = self.core
        core.totals.lost += np.array(gap.lost, np.int64)
        core.pending_lost += sum(gap.lost)
        start = gap.start_ns or core.t_ns
        end = max(gap.end_ns, start)
        self._gaps.append(
            GapRow(gap.first_seq, gap.end_seq, start, end, str(gap.reason), tuple(gap.lost))
        )
        if gap.end_seq > gap.first_seq:
            core.lose_sight()
            self._snapshot_due = True

    def _follow(self, stretch: Stretch, *, keyframes: bool) -> None:
        cuts = np.flatnonzero(stretch.records["kind"] == int(Kind.KEYFRAME)).tolist()
        edges = sorted({0, *cuts, len(stretch.records)})
        for low, high in pairwise(edges):
            events = columns_of(
                stretch.records[low:high],
                stretch.lane,
                stretch.lane_base,
                not_before_ns=self.core.t_ns,
            )
            if keyframes and events.kind[0] == Kind.KEYFRAME:
                self._meet_keyframe(events.words(0), int(events.t_ns[0]))
            self._clocks.follow(events)
            self.core.apply(events)

    def _meet_keyframe(self, words: list[int], t_ns: int) -> None:
        was_known = self.core.known
        failed = self.core.totals.audits_failed
        try:
            keyframe = decode_keyframe_arrays(np.array(words, np.uint32))
        except KeyframeDamagedError:
            return
        self.core.adopt(keyframe, t_ns)
        # What a keyframe changed is in no chunk: a snapshot must follow.
        self._snapshot_due |= not was_known or self.core.totals.audits_failed > failed

    def close(self) -> None:
        """Note that nothing more will come: the next take names leaks without a grace."""
        self._closing = True

    def take(self) -> LedgerDelta:
        """Return everything new since the last take."""
        core = self.core
        core.flush_lost()
        snapshot_due = self._is_snapshot_due()
        settles = snapshot_due or self._closing or core.t_ns - self._settled_ns >= SECOND_NS
        if settles:
            self._settle()
        check_laws(core, settled=settles)
        broken = core.laws.take()
        if broken and core.totals.stored.any():  # so that an agent that resumes knows of it
            snapshot_due = settles = True
            self._settle()
        up_to = TIERS[-1] if snapshot_due or self._closing else self._coarsest_due()
        self._taken_at = (core.t_ns, self.seq)
        leaks = self._look_for_leaks() if settles else []
        requests = self._request_rows(up_to)
        if settles:
            core.owners.recycle()
        delta = LedgerDelta(
            seq=self.seq,
            t_ns=core.t_ns,
            wall_offset_ns=core.wall_offset_ns,
            chunks=self._chunks.take(),
            rollups=core.rollups.take(up_to),
            latencies=core.latencies.take(up_to),
            labelled=core.labelled.take(core.tenant_label, up_to),
            requests=requests,
            gaps=tuple(self._gaps),
            audits=self._audits(),
            broken_laws=broken,
            leaks=tuple(leaks),
            clock_steps=self._clocks.take(),
            stored=tuple((core.totals.stored - self._taken_stored).tolist()),
            lost=tuple((core.totals.lost - self._taken_lost).tolist()),
            unknown=core.totals.unknown - self._taken_unknown,
            strings=core.new_strings,
            config=core.config if core.config_is_new else None,
        )
        self._forget()
        return replace(delta, snapshot=self._snapshot()) if snapshot_due else delta

    def _is_snapshot_due(self) -> bool:
        core = self.core
        events = int(core.totals.stored.sum()) - self._snapshot_events
        if self._snapshot_due:
            return bool(core.totals.stored.any())
        return core.has_changed and (
            core.t_ns - self._snapshot_ns >= SNAPSHOT_NS or events >= SNAPSHOT_EVENTS
        )

    def _coarsest_due(self) -> int:
        """Return up to which tier rows are handed out: where an interval of the finer one begins.

        So what is held back belongs to open intervals alone, which replay restores. A take without
        news, or one that tells of a gap, hands out everything.
        """
        t_ns, seq = self._taken_at
        if seq == self.seq or self._gaps:
            return TIERS[-1]
        due = TIERS[0]
        for tier, coarser in pairwise(TIERS):
            before, now = (
                interval_start(at, wall_offset_ns=self.core.wall_offset_ns, tier_seconds=tier)
                for at in (t_ns, self.core.t_ns)
            )
            if before == now:
                break
            due = coarser
        return due

    def _settle(self) -> None:
        core = self.core
        owners, requests = core.owners, core.requests
        owners.references.settle(owners.held)
        paid = owners.paid_now(core.blocks, core.t_ns)
        group_of = {s.owner: s.parent or s.owner for s in requests.live.values()}
        sharing = owners.sharing(group_of)
        nothing = Sharing(0, 0, 0, 0) if core.known else None
        for state in requests.live.values():
            slot = owners.slots.get(state.owner)
            state.paid_ns = 0.0 if slot is None else float(paid[slot])
            state.sharing = sharing.get(state.owner, nothing)
        requests.blockers.settle(requests.live, core.t_ns)
        heads = (requests.live.get(owner) for owner in requests.blockers.behind)
        requests.changed.update((state.owner, state) for state in heads if state is not None)
        self._settled_ns = core.t_ns

    def _look_for_leaks(self) -> list[Leak]:
        core = self.core
        if not core.known:  # who holds what is not known either
            return []
        if self._closing:
            return core.leaks.look_at_the_end(core.owners, core.t_ns)
        return core.leaks.look(
            core.owners,
            t_ns=core.t_ns,
            num_steps=core.num_steps,
            idle=not core.requests.live,
        )

    def _request_rows(self, up_to: int) -> tuple[RequestRow, ...]:
        """Return rows of sequences that ended; of live ones now and then, as of rollups."""
        core = self.core
        requests = core.requests
        new_events = int((core.totals.stored - self._taken_stored).sum())
        catching_up = new_events >= CATCHING_UP_EVENTS and not self._closing
        period = CATCHING_UP_REFRESH_NS if catching_up else REFRESH_NS
        chosen: dict[int, RequestState] = dict(requests.changed)
        everything = up_to == TIERS[-1] and not catching_up
        if everything or core.t_ns - self._refreshed_ns >= period:
            chosen.update(requests.live)
            self._refreshed_ns = core.t_ns
        elif catching_up or up_to == TIERS[0]:
            chosen = {n: state for n, state in chosen.items() if n not in requests.live}
        requests.changed = {n: s for n, s in requests.changed.items() if n not in chosen}
        held = core.host_holders.held
        rows = RowMaker(
            core.owners, core.shape.block_size, core.strings, core.t_ns, held, requests.kv_groups
        )
        return tuple(rows.row(state) for state in chosen.values())

    def _audits(self) -> AuditResult:
        totals = self.core.totals
        self._recent = [*self._recent, *self.core.failures][-RECENT_FAILURES:]
        return AuditResult(
            totals.audits_passed - self._taken_passed,
            totals.audits_failed - self._taken_failed,
            tuple(self.core.failures),
        )

    def _forget(self) -> None:
        """Count everything so far as handed out."""
        core = self.core
        # Ended ones were handed out; live ones may be again, which changes nothing.
        live = core.requests.live
        core.requests.changed = {n: s for n, s in core.requests.changed.items() if n in live}
        core.new_strings, core.config_is_new, core.failures = {}, False, []
        self._gaps = []
        totals = core.totals
        self._taken_stored, self._taken_lost = totals.stored.copy(), totals.lost.copy()
        self._taken_unknown = totals.unknown
        self._taken_passed, self._taken_failed = totals.audits_passed, totals.audits_failed

    def _forget_replayed(self) -> None:
        """Count what was replayed as handed out, but not open intervals: some were held back."""
        core = self.core
        self._clocks.take()
        core.rollups.forget_closed()
        core.latencies.forget_closed()
        core.labelled.forget_closed()
        self._forget()

    def _snapshot(self) -> Snapshot:
        core = self.core
        core.owners.rebase(core.blocks, core.t_ns)
        core.host.paid_at_ns[:] = core.t_ns
        self._snapshot_ns, self._snapshot_due = core.t_ns, False
        self._snapshot_events = int(core.totals.stored.sum())
        core.has_changed = False
        extra = {"refreshed_ns": self._refreshed_ns} | self._clocks.state()
        return Snapshot(
            seq=self.seq,
            t_ns=core.t_ns,
            num_events=self._snapshot_events,
            map_blob=encode_map_of(core),
            state_blob=encode_state(core, extra),
        )

    def live(self) -> LiveState:
        """Return what is known now."""
        return live_state(self.core, tuple(self._recent), self._clocks)
