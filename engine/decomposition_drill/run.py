"""One pair of a drill: two journals, two windows out of them, one explanation."""

import tempfile
from pathlib import Path

from engine.decomposition_drill.outcome import Outcome, outcome_of
from engine.decomposition_drill.plan import PairPlan
from engine.explain.explain import explain
from engine.explain.journal_window import record_journal
from engine.faults.spec import FaultSpec
from engine.simulation.changed_run import ChangedRun, changed_requests
from engine.simulation.trace_recording import TraceRun, record_trace
from kvpulse.window_recording import WindowRecording


def run_pair(plan: PairPlan) -> Outcome:
    """Simulate, record and explain a pair; what was changed is told to nobody."""
    first, second = recorded(plan.first), recorded(plan.second, plan.faults)
    return outcome_of(plan.case, plan.seed, explain(first, second))


def recorded(run: ChangedRun, faults: tuple[FaultSpec, ...] = ()) -> WindowRecording:
    """Simulate a run into a journal and take its window out of that."""
    with tempfile.TemporaryDirectory() as folder:
        trace = record_trace(
            list(changed_requests(run)),
            journal=Path(folder),
            run=TraceRun(config=run.config, cost=run.cost, faults=faults),
        )
        return record_journal(trace.directory, start_seconds=0, seconds=run.seconds)
