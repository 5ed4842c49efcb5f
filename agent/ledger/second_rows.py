"""Lay what a stretch of events did over its seconds: one row of every scalar metric for each."""

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from agent.ledger.block_ledger import BlockEffects
from agent.ledger.event_columns import Bools, EventColumns, Ints, kind_table
from agent.ledger.intervals import Grid
from agent.ledger.runs import differences
from agent.ledger.second_sums import SecondSums
from agent.rollups.latency import Samples
from agent.rollups.rollup import NULL, blank_rows
from agent.rollups.scalars import COLUMN_INDEX, COUNTERS, LATENCY_INDEX, RANGED_GAUGES
from kvpulse.events import HOST_TIER, MAX_KINDS, FreeOutcome, Kind, StepWord

_FIRST_COUNTER: Final = COLUMN_INDEX[COUNTERS[0]]
_BLOCK_COUNTERS: Final = {
    "allocated": Kind.ALLOCATE,
    "shared": Kind.SHARE,
    "freed": Kind.FREE,
    "evicted": Kind.EVICT,
    "cached_new": Kind.CACHE,
    "copied": Kind.COPY_ON_WRITE,
    "swapped_out": Kind.SWAP_OUT,
    "swapped_in": Kind.SWAP_IN,
}
_TIERED: Final = kind_table(_BLOCK_COUNTERS.values())
_STEP_COUNTERS: Final = {
    "prefill_tokens": StepWord.PREFILL_TOKENS,
    "decode_tokens": StepWord.DECODE_TOKENS,
}
_STEP_DURATIONS: Final = {
    "schedule_ns": StepWord.SCHEDULE_LOW,
    "compute_ns": StepWord.COMPUTE_LOW,
    "sample_ns": StepWord.SAMPLE_LOW,
}


@dataclass(frozen=True, slots=True)
class Before:
    """What stood before a stretch."""

    active: int
    cached: int
    sum_counts: int
    last_step_ns: int  # 0: no step yet


class Stated(NamedTuple):
    """A number that a record states."""

    record: int
    value: int


@dataclass(frozen=True, slots=True)
class StepTable:
    """The `step` records of a stretch by column."""

    second: Ints
    t_ns: Ints
    words: Ints  # [num_steps, len(StepWord)]

    def duration(self, low: int) -> Ints:
        """Return a duration of two words for each step, in ns."""
        return self.words[:, low] | self.words[:, low + 1] << 32


def steps_of(events: EventColumns, grid: Grid) -> StepTable:
    """Return the steps of a stretch."""
    at = np.flatnonzero(events.is_kind(Kind.STEP) & (events.n >= len(StepWord)))
    place = events.first[at] - events.lane_base
    good = (place >= 0) & (place + len(StepWord) <= len(events.lane))
    at, place = at[good], place[good]
    words = events.lane[place[:, None] + np.arange(len(StepWord))].astype(np.int64)
    return StepTable(grid.index[at], events.t_ns[at], words)


def add_event_counts(rows: Ints, events: EventColumns, grid: Grid, stored: Ints) -> None:
    """Count events of block kinds (gpu tier), and of all kinds."""
    refused = events.is_free(FreeOutcome.REFUSED)
    kind = np.where(refused, 0, events.kind).astype(np.int64)
    kind[_TIERED[events.kind] & (events.flags & HOST_TIER != 0)] = 0
    table = np.bincount(
        grid.index * MAX_KINDS + kind, weights=stored, minlength=len(grid) * MAX_KINDS
    ).reshape(len(grid), MAX_KINDS)
    for name, wanted in _BLOCK_COUNTERS.items():
        rows[:, COLUMN_INDEX[name]] += table[:, wanted].astype(np.int64)
    rows[:, COLUMN_INDEX["events_stored"]] += table.sum(axis=1).astype(np.int64)
    if refused.any():
        again = grid.sums(grid.index[refused], stored[refused])
        rows[:, COLUMN_INDEX["refused_frees"]] += again


def add_steps(rows: Ints, steps: StepTable, grid: Grid) -> None:
    """Count steps, their tokens and their times."""
    rows[:, COLUMN_INDEX["steps"]] += grid.sums(steps.second, np.ones(len(steps.second)))
    for name, word in _STEP_COUNTERS.items():
        rows[:, COLUMN_INDEX[name]] += grid.sums(steps.second, steps.words[:, word])
    for name, low in _STEP_DURATIONS.items():
        spent = grid.sums(steps.second, steps.duration(low))
        rows[:, COLUMN_INDEX[name]] += spent
        rows[:, COLUMN_INDEX["step_ns"]] += spent


def step_samples(steps: StepTable, grid: Grid, last_step_ns: int) -> list[Samples]:
    """Return step times, and one inter-token time for each decode token of a step."""
    starts = grid.starts[steps.second]
    spent = np.sum([steps.duration(low) for low in _STEP_DURATIONS.values()], axis=0)
    ones = np.ones(len(starts), np.int64)
    tokens = steps.words[:, StepWord.DECODE_TOKENS]
    between = differences(steps.t_ns, before=last_step_ns)
    told = tokens > 0
    if not last_step_ns and len(told):
        told[0] = False
    return [
        Samples(ones * LATENCY_INDEX["step"], starts, spent, ones),
        Samples(
            (ones * LATENCY_INDEX["inter_token"])[told], starts[told], between[told], tokens[told]
        ),
    ]


def add_block_curves(rows: Ints, effects: BlockEffects, grid: Grid, before: Before) -> None:
    """Sample active, cached and logical blocks at each second's end; integrate the active ones."""
    curves = {
        "active_blocks": (effects.active_after, before.active),
        "cached_blocks": (effects.cached_after, before.cached),
    }
    total = rows[:, COLUMN_INDEX["total_blocks"]]
    used = effects.active_after + effects.cached_after
    for name, (after, first) in curves.items():
        rows[:, COLUMN_INDEX[name]] = grid.at_ends(after, first)
        least, most = grid.extremes(after, first)
        rows[:, COLUMN_INDEX[f"{name}_min"]] = least
        rows[:, COLUMN_INDEX[f"{name}_max"]] = most
    first = before.active + before.cached
    rows[:, COLUMN_INDEX["free_blocks"]] = total - grid.at_ends(used, first)
    least, most = grid.extremes(used, first)
    rows[:, COLUMN_INDEX["free_blocks_min"]] = total - most
    rows[:, COLUMN_INDEX["free_blocks_max"]] = total - least
    rows[:, COLUMN_INDEX["logical_blocks"]] = grid.at_ends(effects.sum_after, before.sum_counts)
    rows[:, COLUMN_INDEX["active_block_ns"]] = grid.integrals(effects.active_after, before.active)
    assert set(RANGED_GAUGES) == {*curves, "free_blocks"}


def rows_of(sums: SecondSums) -> Ints:
    """Return a row for each second with what the request loop counted."""
    rows = blank_rows(len(sums.grid))
    rows[:, _FIRST_COUNTER:] = sums.counters
    running, waiting, limit, swapped = np.array(sums.gauges, np.int64).T
    rows[:, COLUMN_INDEX["running"]] = running
    rows[:, COLUMN_INDEX["waiting"]] = waiting
    rows[:, COLUMN_INDEX["live_sequences"]] = running + waiting
    rows[:, COLUMN_INDEX["blocks_needed"]] = limit
    rows[:, COLUMN_INDEX["swapped"]] = swapped
    return rows


def add_host_blocks(rows: Ints, effects: BlockEffects, grid: Grid, active_before: int) -> None:
    """Sample the active blocks of the host tier at each second's end."""
    rows[:, COLUMN_INDEX["host_active_blocks"]] = grid.at_ends(effects.active_after, active_before)


def add_outlived(rows: Ints, effects: BlockEffects, grid: Grid) -> None:
    """Count what sharing kept active into the seconds in which that ended."""
    outlived = effects.flips.outlived
    if len(outlived.record):
        spent = grid.sums(grid.index[outlived.record], outlived.block_ns)
        rows[:, COLUMN_INDEX["outlived_block_ns"]] += spent


def add_blocks_needed(rows: Ints, held_by_ended: int) -> None:
    """Turn the limits of live sequences into what they may still need to reach them."""
    column = COLUMN_INDEX["blocks_needed"]
    held = rows[:, COLUMN_INDEX["logical_blocks"]] - held_by_ended
    rows[:, column] = np.maximum(rows[:, column] - held, 0)


def carry(rows: Ints, grid: Grid, name: str, last: int | None, stated: list[Stated]) -> None:
    """Carry the newest stated value of a gauge to each second's end; `last` is that before."""
    column = np.full(len(grid), NULL if last is None else last, np.int64)
    for record, value in stated:
        column[grid.index[record] :] = value
    rows[:, COLUMN_INDEX[name]] = column


def lifetime_samples(effects: BlockEffects, grid: Grid, known: Bools) -> Samples:
    """Return how long each block that stopped being active had been so, where that is known."""
    ends = ~effects.flips.starts & known
    lived = effects.flips.lifetime_ns[ends]
    starts = grid.starts[grid.index[effects.flips.record[ends]]]
    ones = np.ones(len(lived), np.int64)
    return Samples(ones * LATENCY_INDEX["block_lifetime"], starts, lived, ones)


def joined(parts: list[Samples]) -> Samples:
    """Return several tables of samples as one."""
    return Samples(
        np.concatenate([part.metric for part in parts]),
        np.concatenate([part.start_ns for part in parts]),
        np.concatenate([part.value_ns for part in parts]),
        np.concatenate([part.weight for part in parts]),
    )
