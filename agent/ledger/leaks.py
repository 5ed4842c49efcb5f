"""Blocks that stay active after their sequence ended: leaks, and those held on purpose.

A leak that began in a gap has no owner that anybody saw: its owner is `UNKNOWN_OWNER`.
"""

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from agent.ledger.delta import HeldBlocks, Leak
from agent.ledger.event_columns import EventColumns, unroll
from agent.ledger.intervals import SECOND_NS
from agent.ledger.owner_ledger import OwnerLedger
from kvpulse.events import HOST_TIER, UNKNOWN_OWNER, HoldReason, Kind

GRACE_STEPS: Final = 2
GRACE_NS: Final = SECOND_NS


@dataclass(frozen=True, slots=True)
class Suspect:
    """A sequence that ended and still holds blocks."""

    ended_ns: int
    steps_then: int


@dataclass(frozen=True, slots=True)
class Hold:
    """A block held on purpose until its lease ends."""

    owner: int
    reason: str
    until_ns: int


@dataclass(slots=True)
class LeakWatch:
    """Suspects, leaks and held blocks."""

    suspects: dict[int, Suspect] = field(default_factory=dict)
    open: dict[tuple[int, int], Leak] = field(default_factory=dict)  # by (block, owner)
    holds: dict[int, Hold] = field(default_factory=dict)  # by block

    def follow_holds(self, events: EventColumns, num_blocks: int) -> None:
        """Follow `hold` records: a lease of 0 releases."""
        for record in np.flatnonzero(events.is_kind(Kind.HOLD)).tolist():
            if events.flags[record] & HOST_TIER:
                continue
            blocks = unroll(events, np.array([record]), num_blocks).block.tolist()
            lease_ms = int(events.aux[record])
            if not lease_ms:
                for block in blocks:
                    self.holds.pop(block, None)
                continue
            hold = Hold(
                int(events.owner[record]),
                _reason(int(events.flags[record])),
                int(events.t_ns[record]) + lease_ms * 1_000_000,
            )
            self.holds.update(dict.fromkeys(blocks, hold))

    def meet_keyframe(self, before: OwnerLedger, owners: OwnerLedger, unseen: Suspect) -> None:
        """Suspect whoever holds what the keyframe gave to no live sequence.

        Args:
            before: Who held what until the keyframe.
            owners: Who does since.
            unseen: The suspect for sequences whose end nobody saw.
        """
        # An engine that states no owners has blocks of unknown owners without a leak.
        stated = before.held_by(UNKNOWN_OWNER) > 0 and UNKNOWN_OWNER not in self.suspects
        if not stated:
            self.suspects[UNKNOWN_OWNER] = unseen
        self.suspects = {o: s for o, s in self.suspects.items() if owners.held_by(o) > 0}

    def look(self, owners: OwnerLedger, *, t_ns: int, num_steps: int, idle: bool) -> list[Leak]:
        """Return leaks that are new or over; `owners.references` is settled.

        A leak is named after a grace of two steps and a second. An idle engine makes no steps; then
        the second is enough.
        """
        self.holds = {b: hold for b, hold in self.holds.items() if hold.until_ns > t_ns}
        due: dict[int, Suspect] = {}
        for owner, suspect in list(self.suspects.items()):
            if owners.held_by(owner) <= 0:
                del self.suspects[owner]
            elif t_ns - suspect.ended_ns >= GRACE_NS and (
                idle or num_steps - suspect.steps_then >= GRACE_STEPS
            ):
                due[owner] = suspect
        return self._renew(owners, due, t_ns)

    def look_at_the_end(self, owners: OwnerLedger, t_ns: int) -> list[Leak]:
        """Return leaks that are new or over when nothing more will come: no grace is left."""
        self.suspects = {o: s for o, s in self.suspects.items() if owners.held_by(o) > 0}
        return self._renew(owners, dict(self.suspects), t_ns)

    def _renew(self, owners: OwnerLedger, due: dict[int, Suspect], t_ns: int) -> list[Leak]:
        slots = np.array([owners.slots[owner] for owner in self.suspects], np.int64)
        at, blocks = owners.references.of_slots(slots)
        found: dict[tuple[int, int], Leak] = {}
        for place in zip(blocks.tolist(), owners.owner[at].tolist(), strict=True):
            block, owner = place
            if block in self.holds:
                continue
            if place in self.open:  # also of a suspect that a later gap gave a new grace
                found[place] = self.open[place]
            elif owner in due:
                found[place] = Leak(block, owner, due[owner].ended_ns)
        changes = [leak for place, leak in found.items() if place not in self.open]
        changes += [
            Leak(leak.block, leak.owner, leak.since_ns, t_ns)
            for place, leak in self.open.items()
            if place not in found
        ]
        self.open = found
        return changes

    def held(self) -> tuple[HeldBlocks, ...]:
        """Return the blocks held on purpose, by holder."""
        by_hold: dict[Hold, list[int]] = {}
        for block, hold in sorted(self.holds.items()):
            by_hold.setdefault(hold, []).append(block)
        return tuple(
            HeldBlocks(hold.owner, hold.reason, tuple(blocks), hold.until_ns)
            for hold, blocks in by_hold.items()
        )


def _reason(flags: int) -> str:
    code = flags & ~HOST_TIER
    return HoldReason(code).name.lower() if code in set(HoldReason) else f"unknown_{code}"
