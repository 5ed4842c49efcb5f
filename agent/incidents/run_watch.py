"""Follow one run of an engine: judge it, and tell what that changes for its incidents.

Time is the run's own wall clock: that of its newest event, and how long ago this was stored. So a
simulated engine's incidents last as long as they do for it, and an engine that falls silent still
grows older.
"""

from dataclasses import dataclass, replace
from typing import Final

from agent.live_view import LiveEngine
from agent.reads.models import RunState
from agent.reads.reads import Reads
from agent.targets.target import Target
from agent.triage.doctor import examine
from agent.triage.gather import Question
from agent.triage.incidents import (
    Change,
    CloseReason,
    Incident,
    IncidentChange,
    IncidentTracker,
)
from agent.triage.past import GatheredPast, gather_past
from agent.triage.verdicts import Diagnosis, Verdict

NS: Final = 1_000_000_000
UPDATE_SECONDS: Final = 60.0  # between two writings of an open incident's evidence
WINDOW_SECONDS: Final = 60.0
PAST_SECONDS: Final = 1_800.0
PAST_KEPT_SECONDS: Final = 60.0  # so long one reading of the past serves
# These verdicts compare with the past: once one is open, what came later is no measure for it...
COMPARED: Final = frozenset({Verdict.COMPUTE_SLOW, Verdict.TENANT_HOG, Verdict.TRAFFIC_SHIFT})
NEW_NORMAL_SECONDS: Final = 6 * 3_600.0  # ... but what has held for so long is the past by now
MOST_WAITING: Final = 500  # changes that the store did not take; beyond it the oldest are forgotten
Identity = tuple[Verdict, int]


@dataclass(frozen=True, slots=True)
class Written:
    """What the store has of an open incident."""

    at_ns: int
    verdict: Verdict


class RunWatch:
    """The incidents of one run, as far as they are known; for one thread."""

    def __init__(
        self, run_key: int, open_incidents: list[Incident], targets: tuple[Target, ...] = ()
    ) -> None:
        self.run_key = run_key
        self._targets = targets
        self.is_over = False  # judged for the last time
        self.diagnosis: Diagnosis | None = None
        self._tracker = IncidentTracker()
        self._tracker.resume(open_incidents)
        self._written = {
            _identity(each): Written(each.seen_at_ns, each.verdict) for each in open_incidents
        }
        self._waiting: list[IncidentChange] = []
        self._now_ns = max((each.seen_at_ns for each in open_incidents), default=0)
        self._past: GatheredPast | None = None
        self._past_at_ns = 0
        self._past_end_ns: int | None = None

    @property
    def open_verdicts(self) -> frozenset[str]:
        """Return what is open and stored."""
        return frozenset(written.verdict.value for written in self._written.values())

    def judge(self, reads: Reads, live: LiveEngine, wall_ns: int) -> list[IncidentChange]:
        """Judge the run as it is stored; return what is to be stored of its incidents.

        Args:
            wall_ns: The agent's wall clock, which commits are dated by.

        Raises:
            StoreError: It cannot be read; nothing has changed.
        """
        run = reads.run(self.run_key)
        if run is None:
            return []
        now_ns = max(self._now_ns, _run_now_ns(live, wall_ns))
        question = Question(
            run,
            seconds=WINDOW_SECONDS,
            past_seconds=PAST_SECONDS,
            now_ns=wall_ns,
            targets=self._targets,
        )
        past = self._past_of(reads, question, now_ns)
        self.diagnosis = examine(reads, replace(question, past=past))
        self._now_ns = now_ns
        changes = self._tracker.follow(self.diagnosis, now_ns)
        if run.state is not RunState.LIVE and live.state is not RunState.LIVE:
            self.is_over = True
            is_down = {Verdict.ENGINE_DOWN} if run.state is RunState.DEAD else set()
            ended_ns = run.last_event_at_ns or now_ns
            changes += self._tracker.end(CloseReason.ENGINE_ENDED, ended_ns, but=is_down)
        return self._due(changes)

    @property
    def has_waiting(self) -> bool:
        """Whether the store has not taken something yet."""
        return bool(self._waiting)

    def retry(self) -> list[IncidentChange]:
        """Return what the store has not taken yet."""
        return self._due([])

    def keep(self, changes: list[IncidentChange]) -> None:
        """Keep changes that the store did not take, for the next time."""
        lasting = [change for change in changes if change.change is not Change.UPDATED]
        self._waiting = lasting[-MOST_WAITING:]

    def stored(self, changes: list[IncidentChange]) -> None:
        """Note what the store has taken."""
        self._waiting = []
        for change in changes:
            incident = change.incident
            if change.change is Change.CLOSED:
                self._written.pop(_identity(incident), None)
            elif incident.key is not None:
                self._tracker.stored(incident, incident.key)
                self._written[_identity(incident)] = Written(self._now_ns, incident.verdict)

    def _due(self, changes: list[IncidentChange]) -> list[IncidentChange]:
        """Return what is worth a transaction: evidence is rewritten once in a while only."""
        newest = {_identity(each): each for each in self._tracker.open.values()}
        waiting = [
            replace(each, incident=newest.get(_identity(each.incident), each.incident))
            for each in self._waiting
        ]
        return [
            *waiting,
            *(each for each in changes if each.change is not Change.UPDATED or self._is_due(each)),
        ]

    def _is_due(self, change: IncidentChange) -> bool:
        written = self._written.get(_identity(change.incident))
        if written is None:
            return False  # it waits to be stored as opened
        is_old = self._now_ns - written.at_ns >= UPDATE_SECONDS * NS
        return is_old or written.verdict is not change.incident.verdict

    def _past_of(self, reads: Reads, question: Question, now_ns: int) -> GatheredPast:
        """Return the past that the run is held against: of before an open incident, if any."""
        since = [
            incident.opened_at_ns
            for incident in self._tracker.open.values()
            if incident.verdict in COMPARED
            and now_ns - incident.opened_at_ns < NEW_NORMAL_SECONDS * NS
        ]
        window_ns = int(WINDOW_SECONDS * NS)
        frozen_ns = min(since) - window_ns if since else None
        is_old = now_ns - self._past_at_ns >= PAST_KEPT_SECONDS * NS and frozen_ns is None
        if self._past is None or is_old or frozen_ns != self._past_end_ns:
            run = question.run
            newest_ns = run.last_event_at_ns or run.started_at_ns
            before_ns = frozen_ns if frozen_ns is not None else newest_ns - window_ns
            self._past = gather_past(
                reads,
                run,
                before_ns=max(before_ns, run.started_at_ns),
                seconds=question.past_seconds,
            )
            self._past_at_ns, self._past_end_ns = now_ns, frozen_ns
        return self._past


def _run_now_ns(live: LiveEngine, wall_ns: int) -> int:
    newest_ns = live.last_event_at_ns or live.started_at_ns
    return newest_ns + max(0, wall_ns - live.last_commit_at_ns)


def _identity(incident: Incident) -> Identity:
    return incident.opened_as, incident.opened_at_ns
