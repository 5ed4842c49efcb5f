"""Read out of the store how an engine does against its targets."""

from collections.abc import Sequence
from typing import Final

from agent.reads.reads import Reads
from agent.rollups.histogram import Histogram
from agent.targets.attainment import WINDOWS_SECONDS, Attainment, attainment
from agent.targets.target import Target, targets_of

NS: Final = 1_000_000_000


def measure(
    reads: Reads, engine: str, targets: Sequence[Target], end_ns: int
) -> tuple[Attainment, ...]:
    """Return each target of an engine over each window up to `end_ns`.

    A window is of the engine, not of its run: what it did before a restart counts.
    """
    ours = targets_of(targets, engine)
    if not ours:
        return ()
    earliest_ns = end_ns - max(WINDOWS_SECONDS) * NS
    runs = [
        run.run_key
        for run in reads.runs(engine)
        if run.started_at_ns < end_ns and (run.last_event_at_ns or run.started_at_ns) >= earliest_ns
    ]
    found = []
    for target in ours:
        for seconds in WINDOWS_SECONDS:
            merged = Histogram()
            for run_key in runs:
                start_ns = end_ns - seconds * NS
                merged.merge(reads.latency_histogram(run_key, target.latency, start_ns, end_ns))
            found.append(attainment(target, seconds, merged))
    return tuple(found)
