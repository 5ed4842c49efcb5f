"""Conditions that last, out of verdicts that come every few seconds. Pure: time comes with them.

One condition is one incident. It opens when its verdict has held for a while as a cause (that is,
no other finding explains it), and closes when it has not been seen for a while; between the two it
is updated. So a verdict that flickers opens nothing, and a condition that lets up for a moment goes
on. Where what is open turns out to be a consequence of something else, the incident goes on under
the name of its cause.
"""

from collections.abc import Iterable, Set
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from agent.triage.verdicts import Diagnosis, Finding, Verdict

NS: Final = 1_000_000_000

CLOSE_AFTER_SECONDS: Final = 60.0
MISSED_AFTER_SECONDS: Final = 15.0  # not seen for so long: the waiting to open begins anew


class Change(StrEnum):
    """What happened to an incident. The values are API."""

    OPENED = "opened"
    UPDATED = "updated"
    CLOSED = "closed"


class CloseReason(StrEnum):
    """Why an incident is over. The values are API."""

    CLEARED = "cleared"  # not seen for a minute
    ENGINE_ENDED = "engine_ended"  # its run is over, and the condition with it
    ENGINE_RESTARTED = "engine_restarted"  # the engine that was down has a new run
    ENGINE_GONE = "engine_gone"  # down for a day: nobody means to start it again


@dataclass(frozen=True, slots=True)
class Incident:
    """One condition of one engine.

    Attributes:
        verdict: Its cause as far as it is known now.
        opened_as: Its verdict when it was opened. With the run and `opened_at_ns` it tells the
            incident from every other one.
        opened_at_ns: When its verdict was first seen, not when it had held for long enough.
        seen_at_ns: When it held last.
        opening: The diagnosis that opened it.
        diagnosis: The newest one in which it was seen as a cause.
        finding: Of that diagnosis, the one that it is about.
        peak_at_ns: When it cost most.
        peak_impact: Sequences held up then, on average over the window.
        key: Of its row in the store; None: not stored yet.
    """

    engine: str
    run_id: str
    verdict: Verdict
    opened_as: Verdict
    opened_at_ns: int
    seen_at_ns: int
    opening: Diagnosis
    diagnosis: Diagnosis
    finding: Finding
    peak_at_ns: int
    peak_impact: float
    closed_at_ns: int | None = None
    close_reason: CloseReason | None = None
    key: int | None = None

    def seen(self, diagnosis: Diagnosis, finding: Finding, now_ns: int) -> "Incident":
        """Return it as it is when it was seen once more, as a cause."""
        is_peak = finding.impact > self.peak_impact
        return replace(
            self,
            verdict=finding.verdict,
            seen_at_ns=now_ns,
            diagnosis=diagnosis,
            finding=finding,
            peak_at_ns=now_ns if is_peak else self.peak_at_ns,
            peak_impact=finding.impact if is_peak else self.peak_impact,
        )

    def closed(self, reason: CloseReason, at_ns: int) -> "Incident":
        """Return it as it is when it is over."""
        return replace(self, closed_at_ns=max(at_ns, self.opened_at_ns), close_reason=reason)


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

    def resume(self, incidents: Iterable[Incident]) -> None:
        """Go on with incidents that were open when a former agent saw them last."""
        self.open = {incident.verdict: incident for incident in incidents}

    def stored(self, incident: Incident, key: int) -> None:
        """Note under which key an incident that is still open was stored."""
        ours = self.open.get(incident.verdict)
        if ours is not None and ours.opened_at_ns == incident.opened_at_ns:
            self.open[incident.verdict] = replace(ours, key=key)

    def end(self, reason: CloseReason, at_ns: int, *, but: Set[Verdict]) -> list[IncidentChange]:
        """Close what is open, since its engine has ended; nothing else will open."""
        over = [incident for verdict, incident in self.open.items() if verdict not in but]
        for incident in over:
            del self.open[incident.verdict]
        self._candidates.clear()
        return [IncidentChange(Change.CLOSED, each.closed(reason, at_ns)) for each in over]

    def follow(self, diagnosis: Diagnosis, now_ns: int) -> list[IncidentChange]:
        """Return what a verdict changes.

        Args:
            now_ns: On the clock of the diagnosis, never going back.
        """
        found = [f for f in diagnosis.causes if f.verdict is not Verdict.HEALTHY]
        causes: dict[Verdict, Finding] = {finding.verdict: finding for finding in found}
        changes: list[IncidentChange] = []
        for finding in causes.values():
            changes += self._see(diagnosis, finding, causes.keys(), now_ns)
        effects = {f.verdict for f in diagnosis.contributing} - causes.keys()
        changes += self._let_go(causes.keys() | effects, now_ns)
        return changes

    def _see(
        self, diagnosis: Diagnosis, finding: Finding, causes: Set[Verdict], now_ns: int
    ) -> list[IncidentChange]:
        verdict = finding.verdict
        incident = self.open.get(verdict)
        if incident is not None:
            self.open[verdict] = incident.seen(diagnosis, finding, now_ns)
            return [IncidentChange(Change.UPDATED, self.open[verdict])]
        candidate = self._candidates.get(verdict)
        if candidate is None or now_ns - candidate.seen_ns > MISSED_AFTER_SECONDS * NS:
            candidate = self._candidates[verdict] = Candidate(now_ns, now_ns)
        candidate.seen_ns = now_ns
        hold_ns = finding.opens_after_seconds * NS
        if now_ns - candidate.first_ns < hold_ns:
            return []
        del self._candidates[verdict]
        before = self._same_condition(finding, causes)
        if before is not None:
            del self.open[before.verdict]
            self.open[verdict] = before.seen(diagnosis, finding, now_ns)
            return [IncidentChange(Change.UPDATED, self.open[verdict])]
        opened = Incident(
            engine=diagnosis.engine,
            run_id=diagnosis.run_id,
            verdict=verdict,
            opened_as=verdict,
            opened_at_ns=candidate.first_ns,
            seen_at_ns=now_ns,
            opening=diagnosis,
            diagnosis=diagnosis,
            finding=finding,
            peak_at_ns=now_ns,
            peak_impact=finding.impact,
        )
        self.open[verdict] = opened
        return [IncidentChange(Change.OPENED, opened)]

    def _same_condition(self, finding: Finding, causes: Set[Verdict]) -> Incident | None:
        """Return the open incident that goes on under this finding's name.

        It is one that turned out to be this one's consequence, or one that is over itself while
        this consequence of it lasts.
        """
        related = (
            incident
            for verdict, incident in self.open.items()
            if verdict not in causes
            and (verdict in finding.explains or finding.verdict in incident.finding.explains)
        )
        return next(related, None)

    def _let_go(self, held: Set[Verdict], now_ns: int) -> list[IncidentChange]:
        """Close what has not held for long enough; a consequence of something else still holds."""
        changes = []
        for verdict, incident in list(self.open.items()):
            if verdict in held:
                self.open[verdict] = replace(incident, seen_at_ns=now_ns)
            elif now_ns - incident.seen_at_ns >= CLOSE_AFTER_SECONDS * NS:
                del self.open[verdict]
                closed = incident.closed(CloseReason.CLEARED, incident.seen_at_ns)
                changes.append(IncidentChange(Change.CLOSED, closed))
        return changes
