"""Run one scenario: record it, follow it, judge it, and say how that went."""

import tempfile
from pathlib import Path
from typing import Final

from agent.drill.engine_process import record
from agent.drill.follow import FollowedRun, Look, streams_of
from agent.drill.outcome import Outcome, assess
from agent.drill.scenario import Scenario
from agent.reads.reads import open_reads
from agent.sources.journal import JournalFolder
from agent.store.store import Store
from agent.triage.incidents import Change, IncidentTracker
from agent.triage.past import Stretch

EVERY_SECONDS: Final = 10.0
BEFORE_SECONDS: Final = 60.0  # judged before a fault begins, for false alarms
NS: Final = 1_000_000_000


def run_scenario(scenario: Scenario) -> Outcome:
    """Return how triage did in one scenario.

    Raises:
        DrillError: The engine failed by itself.
    """
    with tempfile.TemporaryDirectory(prefix="kvpulse-drill-") as name:
        folder = Path(name)
        recorded = record(scenario, folder)
        store_path = str(folder / "drill.db")
        with Store.open(store_path) as store:
            reads = open_reads(store_path)
            try:
                watched = [
                    _watch(scenario, FollowedRun(found, store, reads))
                    for found in streams_of(JournalFolder(recorded.journal))
                ]
            finally:
                reads.close()
        looks = [look for one in watched for look in one.looks]
        alarms = [alarm for one in watched for alarm in one.alarms]
        return assess(scenario, looks, recorded.truth, alarms)


class Watched:
    """What was seen of one run."""

    def __init__(self) -> None:
        self.looks: list[Look] = []
        self.alarms: list[str] = []


def _watch(scenario: Scenario, followed: FollowedRun) -> Watched:
    """Judge a run every ten seconds: all of a healthy one, of another from before its fault on."""
    watched, tracker = Watched(), IncidentTracker()
    ends = scenario.traffic.seconds
    at = EVERY_SECONDS
    if scenario.faults:
        at, ends = (
            scenario.begins_seconds - BEFORE_SECONDS,
            scenario.begins_seconds + scenario.watched_seconds,
        )
    try:
        while at <= ends and not followed.has_ended:
            followed.advance(at)
            look = followed.look(_apart(tracker))
            watched.looks.append(look)
            for change in tracker.follow(look.diagnosis, followed.clock.wall_ns()):
                is_early = not scenario.expected or look.at_seconds < scenario.begins_seconds
                if change.change is Change.OPENED and is_early:
                    incident = change.incident
                    watched.alarms.append(
                        f"{incident.verdict} at {look.at_seconds:.0f} s: {incident.finding.summary}"
                    )
            at += EVERY_SECONDS
    finally:
        followed.close()
    return watched


def _apart(tracker: IncidentTracker) -> tuple[Stretch, ...]:
    """Return the time of open incidents, which is no example of health."""
    return tuple(
        Stretch(incident.opened_at_ns - int(BEFORE_SECONDS * NS), incident.seen_at_ns)
        for incident in tracker.open.values()
    )
