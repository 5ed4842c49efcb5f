"""Everything that the ledger knows, and how a stretch of events changes it.

`Ledger` (ledger.py) is this plus what is waiting to be stored.
"""

from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from agent.kv_groups import StatedGroups
from agent.ledger import evidence, second_rows
from agent.ledger.audit import (
    PoolAccount,
    audit,
    audit_name,
    compare_keyframe,
    pool_accounts,
)
from agent.ledger.block_ledger import BlockEffects, BlockLedger
from agent.ledger.broken_laws import LawWatch
from agent.ledger.delta import NOBODY, LawFailure, RunShape
from agent.ledger.event_columns import EventColumns, Ints, kind_table
from agent.ledger.host_holders import HostHolders
from agent.ledger.intervals import Grid, interval_start
from agent.ledger.keyframe_fold import adopt_blocks, adopt_owners, adopt_requests
from agent.ledger.leaks import LeakWatch, Suspect
from agent.ledger.owner_ledger import FirstBlock, OwnerLedger
from agent.ledger.request_ledger import RequestLedger
from agent.ledger.second_rows import Stated
from agent.ledger.second_sums import SecondSums, WaitCurve
from agent.ledger.stated_config import read_stated_config
from agent.rollups.labelled import LabelledRollups
from agent.rollups.latency import LatencyRollups
from agent.rollups.rollup import NULL, Rollups, blank_rows
from agent.rollups.scalars import COLUMN_INDEX, COLUMNS, COUNTERS, GAUGES
from agent.rollups.tenants import tenant_blocks, tenant_sums
from kvpulse.events import MAX_KINDS, Kind, StepWord
from kvpulse.keyframe_decoder import KeyframeArrays
from kvpulse.plain_text import plain_text

FIRST_COUNTER: Final = COLUMN_INDEX[COUNTERS[0]]
MAX_FAILURES: Final = 100  # kept between two takes; all are counted
CHANGING_KINDS: Final = kind_table(set(Kind) - {Kind.HEARTBEAT, Kind.POOL, Kind.KEYFRAME})


@dataclass(slots=True)
class Totals:
    """Sums since the run began."""

    counters: Ints = field(default_factory=lambda: np.zeros(len(COUNTERS), np.int64))
    stored: Ints = field(default_factory=lambda: np.zeros(MAX_KINDS, np.int64))
    lost: Ints = field(default_factory=lambda: np.zeros(MAX_KINDS, np.int64))
    unknown: int = 0
    gaps: int = 0
    audits_passed: int = 0
    audits_failed: int = 0
    laws_failed: int = 0


class LedgerCore:
    """The state of one run, up to a record."""

    def __init__(self, shape: RunShape) -> None:
        self.shape = shape
        self.blocks = BlockLedger(shape.total_blocks, host=False)
        self.host = BlockLedger(shape.host_blocks, host=True)
        self.host_holders = HostHolders()
        self.owners = OwnerLedger()
        self.requests = RequestLedger(shape.block_size)
        self.curve = WaitCurve()
        self.leaks = LeakWatch()
        self.rollups = Rollups()
        self.latencies = LatencyRollups()
        self.labelled = LabelledRollups()
        self.totals = Totals()
        self.wall_offset_ns = 0
        self.t_ns = 0
        self.known = False  # False: between a gap and the next keyframe
        self.continuous = False  # False: what lies between `t_ns` and the next record is not known
        self.active_block_ns = 0  # integral, since the run (or the last gap) began
        self.num_steps = 0
        self.last_step: int | None = None
        self.last_step_ns = 0
        self.filled_slots: int | None = None
        self.filled_of_blocks: int | None = None  # active then
        self.largest_free_run: int | None = None
        self.gauges: dict[str, int | None] = dict.fromkeys(GAUGES)
        self.strings: dict[int, str] = {}
        self.new_strings: dict[int, str] = {}
        self.config: dict[str, object] | None = None
        self.config_is_new = False
        self.failures: list[LawFailure] = []
        self.laws = LawWatch()
        self.has_changed = False  # since the last snapshot
        self.pending_lost = 0  # lost events that no rollup row counts yet

    def set_wall_offset(self, offset_ns: int) -> None:
        """Fix how engine time maps to wall time, before the first events."""
        self.wall_offset_ns = self.rollups.wall_offset_ns = offset_ns
        self.latencies.wall_offset_ns = self.labelled.wall_offset_ns = offset_ns

    def fail(self, failure: LawFailure) -> None:
        """Keep a failure to be reported."""
        self.laws.broke(failure)
        if len(self.failures) < MAX_FAILURES:
            self.failures.append(failure)

    def lose_sight(self) -> None:
        """Note a gap: laws rest and owners are unknown until the next keyframe."""
        self.known = self.continuous = False
        self.last_step_ns = 0
        self.host_holders.forget()
        self.blocks.outlived.forget()
        self.totals.gaps += 1
        for state in self.requests.live.values():
            state.spans_gap = state.waits_unknown = True
            self.requests.changed[state.owner] = state

    def adopt(self, keyframe: KeyframeArrays, t_ns: int) -> None:
        """Take over a keyframe, or hold it against what is known already."""
        self._learn_strings(keyframe.strings)
        if self.known:
            live = {number: self.owners.held_by(number) for number in self.requests.live}
            failure = compare_keyframe(keyframe, self.blocks, live, t_ns)
            self._count_audit("audit_keyframe", failure, t_ns)
            if failure is None:
                return
        adopt_blocks(self.blocks, keyframe.counts.astype(np.int64), keyframe, t_ns)
        adopt_blocks(self.host, keyframe.host_counts.astype(np.int64), keyframe, t_ns)
        before, ended = self.owners, self.leaks.suspects.keys()
        self.owners = adopt_owners(before, self.blocks, keyframe, ended)
        self.curve = adopt_requests(self.requests, keyframe, t_ns)
        self.leaks.meet_keyframe(before, self.owners, Suspect(t_ns, self.num_steps))
        self.active_block_ns = 0
        self.known = True

    def _count_audit(self, law: str, failure: LawFailure | None, t_ns: int) -> None:
        if failure is None:
            self.totals.audits_passed += 1
            self.laws.held((law,), t_ns)
        else:
            self.totals.audits_failed += 1
            self.fail(failure)

    def _learn_strings(self, strings: dict[int, str]) -> None:
        new = {i: text for i, text in strings.items() if self.strings.get(i) != text}
        self.strings.update(new)
        self.new_strings.update(new)

    def apply(self, events: EventColumns) -> None:
        """Follow a stretch of at least one record."""
        self._read_texts(events)
        accounts = pool_accounts(events)
        totals_before = (self.blocks.total, self.host.total)
        for account in accounts:
            if account.adds_up:
                (self.host if account.host else self.blocks).grow(account.total)
        stored = events.events_per_record()
        grid = self._grid(events)
        before = second_rows.Before(
            self.blocks.active,
            self.blocks.cached,
            self.blocks.sum_counts,
            self.last_step_ns,
        )
        tenants_before = tenant_blocks(self.blocks)
        effects = self.blocks.apply(events)
        host_before = self.host.active
        host_effects = self.host.apply(events) if self.host.total else None
        first_blocks = self.owners.apply(events, effects)
        self.leaks.follow_holds(events, len(self.blocks.count))
        sums = SecondSums.over(grid, self.curve)
        self.requests.apply(events, sums, self.last_step_ns)
        self._suspect_the_ended()
        self._check_ids(events, effects)
        self._audit(accounts, effects, host_effects, sums)
        self._sample_first_blocks(first_blocks, sums)
        _sample_allocate_calls(accounts, sums)
        rows = second_rows.rows_of(sums)
        second_rows.add_event_counts(rows, events, grid, stored)
        self._add_stated(rows, accounts, grid, totals_before)
        second_rows.add_block_curves(rows, effects, grid, before)
        second_rows.add_blocks_needed(rows, self.held_by_ended())
        second_rows.add_outlived(rows, effects, grid)
        if host_effects is not None:
            second_rows.add_host_blocks(rows, host_effects, grid, host_before)
            self.host_holders.follow(events, host_effects, self.host.active)
        steps = second_rows.steps_of(events, grid)
        second_rows.add_steps(rows, steps, grid)
        tenant_sums(sums.labelled, grid, effects, tenants_before)
        self._roll_up(rows, grid, sums)
        lived = second_rows.lifetime_samples(effects, grid, effects.flips.since_known)
        timed = second_rows.step_samples(steps, grid, before.last_step_ns)
        self.latencies.add(second_rows.joined([sums.samples_table(), lived, *timed]))
        self._advance(events, steps, stored)

    def _grid(self, events: EventColumns) -> Grid:
        begin = self.t_ns if self.continuous else int(events.t_ns[0])
        if not self.continuous:
            self.curve.jump(begin)
        return Grid.over(events.t_ns, before_ns=begin, wall_offset_ns=self.wall_offset_ns)

    def _add_stated(
        self, rows: Ints, accounts: list[PoolAccount], grid: Grid, totals: tuple[int, int]
    ) -> None:
        """Carry what the pool's accounts state to each second's end; `totals` stood before."""
        mine = [account for account in accounts if not account.host]
        sound = [account for account in accounts if account.adds_up]
        filled = [account for account in mine if account.filled_slots is not None]
        slots = [Stated(a.record, a.filled_slots or 0) for a in filled]
        of = [Stated(a.record, a.active) for a in filled]
        total, host_total = totals
        sizes = [Stated(a.record, a.total) for a in sound if not a.host]
        second_rows.carry(rows, grid, "total_blocks", total, sizes)
        second_rows.carry(rows, grid, "filled_slots", self.filled_slots, slots)
        second_rows.carry(rows, grid, "filled_of_blocks", self.filled_of_blocks, of)
        if self.host.total:
            sizes = [Stated(a.record, a.total) for a in sound if a.host]
            second_rows.carry(rows, grid, "host_total_blocks", host_total, sizes)
        if filled:
            self.filled_slots, self.filled_of_blocks = filled[-1].filled_slots, filled[-1].active
        if mine:
            self.largest_free_run = mine[-1].largest_free_run

    def _roll_up(self, rows: Ints, grid: Grid, sums: SecondSums) -> None:
        rows[0, COLUMN_INDEX["events_lost"]] += self.pending_lost
        self.pending_lost = 0
        passed = rows[:, FIRST_COUNTER:].sum(axis=0)
        self.totals.counters += passed
        self.active_block_ns += int(passed[COLUMN_INDEX["active_block_ns"] - FIRST_COUNTER])
        last = rows[-1].tolist()
        self.gauges = {
            name: None if last[i] == NULL else last[i]
            for i, name in enumerate(COLUMNS[: len(GAUGES)])
        }
        self.rollups.add(grid.starts, rows)
        for start, second in zip(grid.starts.tolist(), sums.labelled, strict=True):
            self.labelled.add(start, second)

    def flush_lost(self) -> None:
        """Give lost events a row when no records followed them."""
        if not self.pending_lost:
            return
        row = blank_rows(1)
        start = interval_start(self.t_ns, wall_offset_ns=self.wall_offset_ns, tier_seconds=1)
        open_row = self.rollups.open_row.get(1)
        if open_row is not None:
            row[0, :FIRST_COUNTER] = open_row[:FIRST_COUNTER]
        row[0, COLUMN_INDEX["events_lost"]] = self.pending_lost
        self.totals.counters += row[0, FIRST_COUNTER:]
        self.rollups.add(np.array([start]), row)
        self.pending_lost = 0

    def _audit(
        self,
        accounts: list[PoolAccount],
        effects: BlockEffects,
        host_effects: BlockEffects | None,
        sums: SecondSums,
    ) -> None:
        if not self.known:
            return
        passed, failed = (COLUMN_INDEX[f"audits_{n}"] - FIRST_COUNTER for n in ("passed", "failed"))
        for account in accounts:
            its = host_effects if account.host else effects
            if its is None:
                continue
            law = audit_name(account)
            failure = audit(account, its)
            if failure is not None and law not in self.laws.open:
                tier = self.host if account.host else self.blocks
                named = evidence.of_audit(account, its, tier, self.owners)
                failure = replace(failure, named=named)
            self._count_audit(law, failure, account.t_ns)
            second = int(sums.grid.index[account.record])
            sums.counters[second, failed if failure else passed] += 1

    def _check_ids(self, events: EventColumns, effects: BlockEffects) -> None:
        if not effects.num_bad:
            return
        size, named = len(self.blocks.count), NOBODY
        if "ids_in_pool" not in self.laws.open:
            named = evidence.of_bad_ids(events, effects, size)
        detail = f"{effects.num_bad} block ids are not in the pool of {self.blocks.total}"
        sides = (f"ids below {size}", f"{effects.num_bad} others")
        self.fail(LawFailure("ids_in_pool", detail, int(events.t_ns[-1]), *sides, named))

    def _sample_first_blocks(self, first_blocks: list[FirstBlock], sums: SecondSums) -> None:
        for first in first_blocks:
            state = self.requests.changed.get(first.owner) or self.requests.live.get(first.owner)
            if state is not None and state.arrived_ns and not state.spans_gap:
                sums.second = int(sums.grid.index_at(np.array([first.t_ns]))[0])
                sums.sample("time_to_first_block", first.t_ns - state.arrived_ns)

    def _suspect_the_ended(self) -> None:
        for state in self.requests.ended:
            if self.owners.held_by(state.owner) > 0:
                self.leaks.suspects[state.owner] = Suspect(state.ended_ns, self.num_steps)
            self.owners.retire(state.owner)
        self.requests.ended.clear()

    def held_by_ended(self) -> int:
        """Return how many references sequences hold that have ended."""
        return sum(max(self.owners.held_by(owner), 0) for owner in self.leaks.suspects)

    def _advance(self, events: EventColumns, steps: second_rows.StepTable, stored: Ints) -> None:
        self.t_ns, self.continuous = int(events.t_ns[-1]), True
        self.has_changed |= bool(CHANGING_KINDS[events.kind].any())
        self.totals.stored += np.bincount(events.kind, weights=stored, minlength=MAX_KINDS).astype(
            np.int64
        )[:MAX_KINDS]
        if len(steps.t_ns):
            at = np.flatnonzero(events.is_kind(Kind.STEP))[-1]
            self.last_step_ns = int(steps.t_ns[-1])
            self.last_step = int(events.aux[at]) | int(steps.words[-1, StepWord.STEP_HIGH]) << 32
            self.num_steps += len(steps.t_ns)
        for failure in self.requests.failures:
            self.totals.laws_failed += 1
            self.fail(failure)
        self.requests.failures.clear()

    def _read_texts(self, events: EventColumns) -> None:
        texts = events.is_kind(Kind.DEFINE) | events.is_kind(Kind.CONFIG)
        for record in np.flatnonzero(texts).tolist():
            raw = np.array(events.words(record), np.uint32).tobytes()[: int(events.aux[record])]
            text = raw.decode("ascii", "replace")
            if events.kind[record] == Kind.DEFINE:
                self._learn_strings({int(events.tenant[record]): plain_text(text)})
                continue
            said = read_stated_config(text)
            if said is not None:
                self.config, self.config_is_new = said, True
                self.requests.kv_groups = StatedGroups.read(said)

    def tenant_label(self, tenant: int) -> str:
        """Return a tenant's alias as a label."""
        if tenant == 0:
            return "none"
        return self.strings.get(tenant, f"tenant_{tenant}")


def _sample_allocate_calls(accounts: list[PoolAccount], sums: SecondSums) -> None:
    for account in accounts:
        if account.allocate_ns is not None:
            sums.second = int(sums.grid.index[account.record])
            sums.sample("allocate_call", account.allocate_ns)
