"""Who holds how many blocks in host memory. Keyframes state no host tables, so numbers suffice."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.ledger.block_ledger import BlockEffects
from agent.ledger.event_columns import EventColumns
from agent.ledger.laws import Equation


@dataclass(slots=True)
class HostHolders:
    """Blocks of host memory by holder; not known from a gap on until the tier is empty again."""

    held: dict[int, int] = field(default_factory=dict)
    known: bool = True

    def forget(self) -> None:
        """Note that something was missed."""
        self.held.clear()
        self.known = False

    def follow(self, events: EventColumns, effects: BlockEffects, active: int) -> None:
        """Follow a stretch; `active` blocks are held after it. Few records are of the host tier."""
        if not active:
            self.held, self.known = {}, True
            return
        picked = effects.picked
        owners, n = events.owner[picked].tolist(), events.n[picked].tolist()
        for owner, blocks, sign in zip(owners, n, effects.sign[picked].tolist(), strict=True):
            left = self.held.get(owner, 0) + sign * blocks
            if left:
                self.held[owner] = left
            else:
                self.held.pop(owner, None)

    def of_ended(self, live: Mapping[int, object]) -> dict[int, int] | None:
        """Return what sequences hold that have ended; None while holders are not known."""
        if not self.known:
            return None
        return {owner: blocks for owner, blocks in self.held.items() if owner not in live}

    def laws(self, sum_counts: int) -> list[Equation]:
        """Return law 2's other half for this tier."""
        if not self.known:
            return []
        held = sum(self.held.values())
        return [
            Equation("host_references_add_up", "held", held, "sum of counts", sum_counts),
        ]
