"""Rollup intervals that are just like the one before are not stored: that one counts them.

An engine that idles gives the same row each second. `repeats` says how many later intervals, right
behind a row's own, had exactly its values, NULLs and zeros included; reading gives them all back.
Only the fine tiers do so. The newest interval may still change and always has a row of its own.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from agent.ledger.delta import RollupRow
from agent.ledger.intervals import SECOND_NS

REPEATING_TIERS: Final = (1, 10)
MOST_SECONDS: Final = 3_600  # that one row stands for


class Repeating(NamedTuple):
    """A row and how many intervals after it were the same."""

    row: RollupRow
    repeats: int = 0


class TierEnd(NamedTuple):
    """The newest stored rows of a tier: the open interval, and the row before it."""

    open: RollupRow
    before: Repeating | None = None


@dataclass(frozen=True, slots=True)
class RepeatPlan:
    """What a commit writes and deletes, and how the tiers end then."""

    rows: tuple[Repeating, ...] = ()
    dropped: tuple[RollupRow, ...] = ()  # stored as open intervals, counted by another row now
    ends: Mapping[int, TierEnd] = field(default_factory=dict)


def plan_repeats(ends: Mapping[int, TierEnd], rollups: Iterable[RollupRow]) -> RepeatPlan:
    """Say how to store rows behind those that are stored. Pure."""
    rows: list[Repeating] = []
    dropped: list[RollupRow] = []
    new_ends = dict(ends)
    by_tier: dict[int, list[RollupRow]] = {}
    for row in rollups:
        if row.tier_seconds in REPEATING_TIERS:
            by_tier.setdefault(row.tier_seconds, []).append(row)
        else:
            rows.append(Repeating(row))
    for tier, its in by_tier.items():
        end, written, gone = _follow(tier, ends.get(tier), sorted(its, key=lambda row: row.t_ns))
        new_ends[tier] = end
        rows += written
        dropped += gone
    return RepeatPlan(tuple(rows), tuple(dropped), new_ends)


class _Followed(NamedTuple):
    end: TierEnd
    rows: list[Repeating]
    dropped: list[RollupRow]


def _follow(tier: int, end: TierEnd | None, its: list[RollupRow]) -> _Followed:
    if end is not None and its[0].t_ns < end.open.t_ns:
        # Not after what is stored: each row for itself.
        return _Followed(TierEnd(its[-1]), [Repeating(row) for row in its], [])
    stored_open = end.open.t_ns if end else None
    before, written = end.before if end else None, dict[int, Repeating]()
    dropped: list[RollupRow] = []
    newest = end.open if end else its[0]
    for row in its:
        if row.t_ns > newest.t_ns:
            if before is not None and _goes_on(tier, before, newest):
                before = Repeating(before.row, before.repeats + 1)
                if newest.t_ns == stored_open:
                    dropped.append(newest)
            else:
                before = Repeating(newest)
            written[before.row.t_ns] = before
        newest = row
    written[newest.t_ns] = Repeating(newest)
    return _Followed(TierEnd(newest, before), list(written.values()), dropped)


def _goes_on(tier: int, before: Repeating, row: RollupRow) -> bool:
    repeats = before.repeats + 1
    return (
        row.t_ns == before.row.t_ns + repeats * tier * SECOND_NS
        and repeats * tier < MOST_SECONDS
        and row.values == before.row.values
    )
