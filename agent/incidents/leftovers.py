"""Incidents of engines that nobody follows now: close what is over, open what nobody saw."""

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from agent.reads.incidents import IncidentFilter, IncidentRow
from agent.reads.models import RunRow, RunState
from agent.reads.reads import Reads
from agent.triage.doctor import examine
from agent.triage.gather import Question
from agent.triage.incidents import Change, CloseReason, IncidentChange, IncidentTracker
from agent.triage.verdicts import Verdict

NS: Final = 1_000_000_000
GONE_SECONDS: Final = 86_400.0  # so long an engine is waited for that is down
SILENT_SECONDS: Final = 300.0  # nobody has written a run for so long that its engine left behind


class RunChanges(NamedTuple):
    """What changes for one run."""

    run_key: int
    changes: list[IncidentChange]


class Ending(NamedTuple):
    """How an incident is over."""

    reason: CloseReason
    at_ns: int


def leftovers(
    reads: Reads, rows: Sequence[IncidentRow], engines: Collection[str], now_ns: int
) -> list[RunChanges]:
    """Return the ends of open incidents whose engine has ended.

    Args:
        rows: Open incidents of runs that nobody judges any more.
        engines: Those that this agent answers for; what is a day old is ended by any agent.
        now_ns: The agent's wall clock.
    """
    found = []
    for row in rows:
        if row.engine not in engines and not _is_given_up(row, now_ns):
            continue
        ending = _ending(reads, row, now_ns)
        if ending is not None:
            closed = reads.incident(row.key).incident.closed(*ending)
            found.append(RunChanges(row.run_key, [IncidentChange(Change.CLOSED, closed)]))
    return found


def unseen_deaths(reads: Reads, engines: Collection[str], now_ns: int) -> list[RunChanges]:
    """Return incidents of engines that died while no agent was there to judge them."""
    found = []
    for engine in engines:
        run = next(iter(reads.runs(engine)), None)
        if run is None or run.state is not RunState.DEAD:
            continue
        committed_ns = reads.telemetry(run.run_key).last_commit_at_ns or 0
        known = reads.incidents(IncidentFilter(run_key=run.run_key))
        is_known = any(row.verdict == Verdict.ENGINE_DOWN for row in known)
        if is_known or now_ns - committed_ns >= GONE_SECONDS * NS:
            continue
        diagnosis = examine(reads, Question(run))
        changes = IncidentTracker().follow(diagnosis, run.last_event_at_ns or run.started_at_ns)
        down = [each for each in changes if each.incident.verdict is Verdict.ENGINE_DOWN]
        found.append(RunChanges(run.run_key, down))
    return found


def _ending(reads: Reads, row: IncidentRow, now_ns: int) -> Ending | None:
    run = reads.run(row.run_key)
    if run is None:
        return None
    next_run = _next_run(reads, run)
    if run.state is RunState.LIVE:
        committed_ns = reads.telemetry(run.run_key).last_commit_at_ns or 0
        if next_run is None or now_ns - committed_ns < SILENT_SECONDS * NS:
            return None
    if row.verdict != Verdict.ENGINE_DOWN:
        return Ending(CloseReason.ENGINE_ENDED, run.last_event_at_ns or row.seen_at_ns)
    if next_run is not None:
        return Ending(CloseReason.ENGINE_RESTARTED, next_run.started_at_ns)
    if _is_given_up(row, now_ns):
        return Ending(CloseReason.ENGINE_GONE, row.seen_at_ns)
    return None


def _next_run(reads: Reads, run: RunRow) -> RunRow | None:
    later = [each for each in reads.runs(run.engine) if each.started_at_ns > run.started_at_ns]
    return later[-1] if later else None


def _is_given_up(row: IncidentRow, now_ns: int) -> bool:
    return now_ns - row.updated_at_ns >= GONE_SECONDS * NS
