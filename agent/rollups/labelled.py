"""Labelled metrics of every tier: few labels, so plain dictionaries."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from agent.ledger.delta import LabelledRow
from agent.ledger.intervals import interval_start
from agent.rollups.rollup import of_tiers, open_only
from agent.rollups.scalars import LABELLED, TIERS

TENANT_SLOTS: Final = 256  # tenants told apart; the last stands for all beyond
OTHER_TENANTS: Final = "(other tenants)"

Sums = dict[tuple[str, str | int], int]  # (family, label or tenant id) → value

_GAUGES: Final = frozenset(family.name for family in LABELLED if family.is_gauge)
_FINEST: Final = {family.name: family.finest_tier for family in LABELLED}


def tenant_key(tenant: int) -> str | int:
    """Return what a tenant's values are kept under."""
    return tenant if tenant < TENANT_SLOTS - 1 else OTHER_TENANTS


def add_into(sums: Sums, more: Iterable[tuple[tuple[str, str | int], int]]) -> None:
    """Add counters and replace gauges."""
    for key, value in more:
        if key[0] in _GAUGES:
            sums[key] = value
        else:
            sums[key] = sums.get(key, 0) + value


@dataclass(slots=True)
class LabelledRollups:
    """The labelled metrics of all tiers, and their totals since the run began."""

    wall_offset_ns: int = 0
    totals: Sums = field(default_factory=dict)
    open_start: dict[int, int] = field(default_factory=dict)
    open: dict[int, Sums] = field(default_factory=dict)
    _changed: dict[tuple[int, int], Sums] = field(default_factory=dict)

    def add(self, start_ns: int, second: Sums) -> None:
        """Add what one second said."""
        if not second:
            return
        add_into(self.totals, second.items())
        for tier in TIERS:
            start = interval_start(start_ns, wall_offset_ns=self.wall_offset_ns, tier_seconds=tier)
            if self.open_start.get(tier) != start:
                self.open_start[tier], self.open[tier] = start, {}
            add_into(
                self.open[tier], (item for item in second.items() if _FINEST[item[0][0]] <= tier)
            )
            self._changed[tier, start] = self.open[tier]

    def take(
        self, name_of: Callable[[int], str], up_to: int = TIERS[-1]
    ) -> tuple[LabelledRow, ...]:
        """Return every changed row not taken yet, of the tiers up to one.

        Args:
            name_of: Names a tenant.
        """
        changed, self._changed = of_tiers(self._changed, up_to)
        return tuple(
            LabelledRow(
                tier, start, family, label if isinstance(label, str) else name_of(label), value
            )
            for (tier, start), sums in changed.items()
            for (family, label), value in sums.items()
        )

    def forget_closed(self) -> None:
        """Count every interval but the open ones as handed out."""
        self._changed = open_only(self._changed, self.open_start)
