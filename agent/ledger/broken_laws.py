"""Laws that do not hold: each is one condition, with a beginning and an end.

It begins with the check that finds it. An audit is over with the next one that passes, all else
with the next full check in which it holds. A law that breaks again soon after is the same one.
"""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Final

from agent.ledger.delta import BrokenLaw, LawFailure
from agent.ledger.intervals import SECOND_NS

REOPEN_NS: Final = 30 * SECOND_NS
AUDITS: Final = frozenset({"audit", "audit_host"})


@dataclass(slots=True)
class LawWatch:
    """Conditions that are open, those that were, and what changed since the last take."""

    open: dict[str, BrokenLaw] = field(default_factory=dict)  # by law
    over: dict[str, BrokenLaw] = field(default_factory=dict)  # the newest of each law that holds
    _changed: dict[tuple[str, int], BrokenLaw] = field(default_factory=dict)
    _failed: set[str] = field(default_factory=set)  # since the last full check

    def broke(self, failure: LawFailure) -> None:
        """Note that a law did not hold."""
        law = failure.law
        self._failed.add(law)
        if law in self.open:
            return
        before = self.over.pop(law, None)
        if before is not None and failure.t_ns - (before.closed_ns or 0) < REOPEN_NS:
            self._set(replace(before, closed_ns=None))
        else:
            self._set(BrokenLaw(law, failure.t_ns, None, failure.evidence))

    def held(self, laws: Collection[str], t_ns: int) -> None:
        """Note that some laws hold at a time."""
        for law in [law for law in self.open if law in laws]:
            self._set(replace(self.open.pop(law), closed_ns=t_ns))

    def checked_all(self, t_ns: int) -> None:
        """Note that every law was checked: what did not fail since the last time holds again."""
        self.held(self.open.keys() - self._failed - AUDITS, t_ns)
        self._failed.clear()

    def _set(self, broken: BrokenLaw) -> None:
        (self.open if broken.closed_ns is None else self.over)[broken.law] = broken
        self._changed[broken.law, broken.opened_ns] = broken

    def take(self) -> tuple[BrokenLaw, ...]:
        """Return the conditions that opened or closed since the last take."""
        changed = tuple(self._changed.values())
        self._changed = {}
        return changed
