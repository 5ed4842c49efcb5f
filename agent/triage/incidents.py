"""Conditions that last, out of verdicts that come every few seconds. Pure: time comes with them.

One condition is one incident. It opens when its verdict has held for a while as a cause (that is,
no other finding explains it), and closes when it has not been seen for a while; between the two it
is updated. So a verdict that flickers opens nothing, and a condition that lets up for a moment goes
on. Where what is open turns out to be a consequence of something else, the incident goes on under
the name of its cause.
"""

from collections.abc import Set
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from agent.triage.verdicts import Diagnosis, Finding, Verdict

NS: Final = 1_000_000_000

CLOSE_AFTER_SECONDS: Final = 60.0
MISSED_AFTER_SECONDS: Final = 15.0  # not seen for so long: the waiting to open begins anew


class Change(StrEnum):
    """What happened to an incident."""

    OPENED = "opened"
    UPDATED = "updated"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Incident:
    """One condition of one engine.

    Attributes:
        opened_at_ns: When its verdict was first seen, not when it had held for long enough.
        seen_at_ns: When it held last.
        key: Of its row in the store; None: not stored yet.
    """

    engine: str
    run_id: str
    verdict: Verdict
    opened_at_ns: int
    seen_at_ns: int
    diagnosis: Diagnosis
    finding: Finding
    closed_at_ns: int | None = None
    key: int | None = None


@dataclass(frozen=True, slots=True)
class IncidentChange:
    """An incident as it is now, and what made it so."""

    change: Change
    incident: Incident


@dataclass(slots=True)
class Candidate:
    """A verdict that may become an incident."""

    first_ns: int
    seen_ns: int


@dataclass(slots=True)
class IncidentTracker:
    """The open incidents of one engine."""

    open: dict[Verdict, Incident] = field(default_factory=dict)
    _candidates: dict[Verdict, Candidate] = field(default_factory=dict)

    def follow(self, diagnosis: Diagnosis, now_ns: int) -> list[IncidentChange]:
        """Return what a verdict changes.

        Args:
            now_ns: On the clock of the diagnosis, never going back.
        """
        found = [f for f in diagnosis.causes if f.verdict is not Verdict.HEALTHY]
        causes: dict[Verdict, Finding] = {finding.verdict: finding for finding in found}
        changes = self._rename(diagnosis, causes)
        for verdict, finding in causes.items():
            changes += self._see(diagnosis, finding, verdict, now_ns)
        effects = {f.verdict for f in diagnosis.contributing} - causes.keys()
        changes += self._let_go(causes.keys() | effects, now_ns)
        return changes

    def _rename(self, diagnosis: Diagnosis, causes: dict[Verdict, Finding]) -> list[IncidentChange]:
        """Give an open incident the name of what turned out to be its cause."""
        changes = []
        for verdict, incident in list(self.open.items()):
            cause = next((f for f in causes.values() if verdict in f.explains), None)
            if cause is None or verdict in causes or cause.verdict in self.open:
                continue
            del self.open[verdict]
            renamed = replace(incident, verdict=cause.verdict, finding=cause, diagnosis=diagnosis)
            self.open[cause.verdict] = renamed
            changes.append(IncidentChange(Change.UPDATED, renamed))
        return changes

    def _see(
        self, diagnosis: Diagnosis, finding: Finding, verdict: Verdict, now_ns: int
    ) -> list[IncidentChange]:
        incident = self.open.get(verdict)
        if incident is not None:
            self.open[verdict] = replace(
                incident, seen_at_ns=now_ns, diagnosis=diagnosis, finding=finding
            )
            return [IncidentChange(Change.UPDATED, self.open[verdict])]
        candidate = self._candidates.get(verdict)
        if candidate is None or now_ns - candidate.seen_ns > MISSED_AFTER_SECONDS * NS:
            candidate = self._candidates[verdict] = Candidate(now_ns, now_ns)
        candidate.seen_ns = now_ns
        hold_ns = finding.opens_after_seconds * NS
        if now_ns - candidate.first_ns < hold_ns:
            return []
        del self._candidates[verdict]
        opened = Incident(
            engine=diagnosis.engine,
            run_id=diagnosis.run_id,
            verdict=verdict,
            opened_at_ns=candidate.first_ns,
            seen_at_ns=now_ns,
            diagnosis=diagnosis,
            finding=finding,
        )
        self.open[verdict] = opened
        return [IncidentChange(Change.OPENED, opened)]

    def _let_go(self, held: Set[Verdict], now_ns: int) -> list[IncidentChange]:
        """Close what has not held for long enough; a consequence of something else still holds."""
        changes = []
        for verdict, incident in list(self.open.items()):
            if verdict in held:
                self.open[verdict] = replace(incident, seen_at_ns=now_ns)
            elif now_ns - incident.seen_at_ns >= CLOSE_AFTER_SECONDS * NS:
                del self.open[verdict]
                closed = replace(incident, closed_at_ns=incident.seen_at_ns)
                changes.append(IncidentChange(Change.CLOSED, closed))
        return changes
