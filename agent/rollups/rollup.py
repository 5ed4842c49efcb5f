"""Rollup rows of every tier: whole replacements, so that storing one twice changes nothing.

A stretch of events arrives as one matrix of seconds; coarser tiers are made from it by grouping.
The newest interval of each tier stays open: carried on, and handed out again when it changed.
"""

from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Final, TypeVar

import numpy as np

from agent.ledger.delta import RollupRow
from agent.ledger.event_columns import Ints
from agent.ledger.intervals import SECOND_NS
from agent.ledger.runs import heads_of, tails_of
from agent.rollups.scalars import COLUMNS, GAUGES, RANGES, TIERS

T = TypeVar("T")

NULL: Final = int(np.iinfo(np.int64).min)  # not measured
_GAUGES: Final = slice(0, len(GAUGES))
_RANGES: Final = slice(len(GAUGES), len(GAUGES) + len(RANGES))
_LEAST: Final = slice(_RANGES.start, _RANGES.stop, 2)
_MOST: Final = slice(_RANGES.start + 1, _RANGES.stop, 2)
_COUNTERS: Final = slice(_RANGES.stop, len(COLUMNS))


def blank_rows(num_rows: int) -> Ints:
    """Return rows in which no gauge is measured and every counter is 0."""
    rows = np.zeros((num_rows, len(COLUMNS)), np.int64)
    rows[:, : _RANGES.stop] = NULL
    return rows


def group_starts(starts: Ints, *, wall_offset_ns: int, tier_seconds: int) -> Ints:
    """Return for each interval the start of the tier's interval around it."""
    return starts - (starts + wall_offset_ns) % (tier_seconds * SECOND_NS)


def merge_rows(rows: Ints, heads: Ints) -> Ints:
    """Merge each run of neighbouring rows that begins at a head: last, least, greatest, sum."""
    merged = np.empty((len(heads), rows.shape[1]), np.int64)
    tails = tails_of(heads, len(rows))
    merged[:, _GAUGES] = rows[tails, _GAUGES]
    least = np.where(rows[:, _LEAST] == NULL, np.iinfo(np.int64).max, rows[:, _LEAST])
    least = np.minimum.reduceat(least, heads, axis=0)
    merged[:, _LEAST] = np.where(least == np.iinfo(np.int64).max, NULL, least)
    merged[:, _MOST] = np.maximum.reduceat(rows[:, _MOST], heads, axis=0)
    merged[:, _COUNTERS] = np.add.reduceat(rows[:, _COUNTERS], heads, axis=0)
    return merged


def of_tiers(
    changed: dict[tuple[int, int], T], up_to: int
) -> tuple[dict[tuple[int, int], T], dict[tuple[int, int], T]]:
    """Split changes by (tier, start) into what to hand out now and what to hold back."""
    if up_to == TIERS[-1]:
        return changed, {}
    now = {key: value for key, value in changed.items() if key[0] <= up_to}
    return now, {key: value for key, value in changed.items() if key[0] > up_to}


def open_only(
    changed: dict[tuple[int, int], T], open_start: dict[int, int]
) -> dict[tuple[int, int], T]:
    """Return the changes of each tier's open interval."""
    return {key: value for key, value in changed.items() if open_start.get(key[0]) == key[1]}


@dataclass(slots=True)
class Rollups:
    """The scalar metrics of all tiers; coarse ones take in what came when they are asked for."""

    wall_offset_ns: int = 0
    open_start: dict[int, int] = field(default_factory=dict)
    open_row: dict[int, Ints] = field(default_factory=dict)
    _changed: dict[tuple[int, int], Ints] = field(default_factory=dict)
    # For each tier, rows of the finer one that it has not taken in.
    _waiting: dict[int, list[tuple[Ints, Ints]]] = field(
        default_factory=lambda: {tier: [] for tier in TIERS}
    )

    def add(self, starts: Ints, rows: Ints) -> None:
        """Add seconds: their starts, ascending, and one row for each."""
        self._waiting[TIERS[0]].append((starts, rows))
        self.merge_waiting(TIERS[0])

    def merge_waiting(self, up_to: int = TIERS[-1]) -> None:
        """Let the tiers up to one take in what was added since the last time."""
        for tier, coarser in zip_longest(TIERS, TIERS[1:]):
            waiting = self._waiting[tier]
            if tier > up_to or not waiting:
                continue
            starts = np.concatenate([starts for starts, _ in waiting])
            rows = np.concatenate([rows for _, rows in waiting])
            waiting.clear()
            starts, rows = self._group(tier, starts, rows)
            self._add_to_tier(tier, starts, rows)
            if coarser:
                self._waiting[coarser].append((starts, rows))

    def _group(self, tier: int, starts: Ints, rows: Ints) -> tuple[Ints, Ints]:
        """Merge rows that fall into the same interval of a tier."""
        groups = group_starts(starts, wall_offset_ns=self.wall_offset_ns, tier_seconds=tier)
        heads = heads_of(groups)
        if len(heads) == len(groups):
            return groups, rows
        return groups[heads], merge_rows(rows, heads)

    def _add_to_tier(self, tier: int, starts: Ints, rows: Ints) -> None:
        totals = rows.copy()
        if self.open_start.get(tier) == int(starts[0]):
            totals[0] = merge_rows(np.stack([self.open_row[tier], rows[0]]), np.array([0]))[0]
        for start, row in zip(starts.tolist(), totals, strict=True):
            self._changed[tier, start] = row
        self.open_start[tier], self.open_row[tier] = int(starts[-1]), totals[-1].copy()

    def take(self, up_to: int = TIERS[-1]) -> tuple[RollupRow, ...]:
        """Return every changed row not taken yet, of the tiers up to one."""
        self.merge_waiting(up_to)
        changed, self._changed = of_tiers(self._changed, up_to)
        return tuple(
            RollupRow(tier, start, tuple(None if v == NULL else v for v in row.tolist()))
            for (tier, start), row in changed.items()
        )

    def forget_closed(self) -> None:
        """Count every interval but the open ones as handed out."""
        self.merge_waiting()
        self._changed = open_only(self._changed, self.open_start)
