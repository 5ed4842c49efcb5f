"""The minutes up to a moment: what they were spent waiting for, and what was computed twice."""

from typing import Final

import numpy as np

from agent.reads.models import RunRow
from agent.reads.reads import Reads
from agent.triage.facts import LastingFacts
from agent.triage.past import Stretch

NS: Final = 1_000_000_000
MOST_POINTS: Final = 10_000  # so that the tier of one second is read
COLUMNS: Final = ("arrived", "prefill_tokens", "decode_tokens", "recomputed_tokens")


def gather_lasting(reads: Reads, run: RunRow, end_ns: int, seconds: float) -> LastingFacts | None:
    """Return the last `seconds` before a moment, None where nothing is stored of them."""
    stretch = Stretch(max(end_ns - int(seconds * NS), run.started_at_ns), end_ns)
    rows = reads.series(run.run_key, COLUMNS, *stretch, max_points=MOST_POINTS)
    if not len(rows.t_ns) or stretch.end_ns <= stretch.start_ns:
        return None
    arrived, prefill, decode, recomputed = (int(np.nansum(rows.values[name])) for name in COLUMNS)
    return LastingFacts(
        seconds=seconds,
        known_seconds=(stretch.end_ns - stretch.start_ns) / NS,
        arrived=arrived,
        waits=waits_by_cause(reads, run, stretch),
        computed_tokens=prefill + decode,
        recomputed_tokens=recomputed,
    )


def waits_by_cause(reads: Reads, run: RunRow, stretch: Stretch) -> dict[str, float]:
    """Return the waiting in a stretch by cause, in sequence-seconds."""
    waits = reads.labelled(run.run_key, "wait_ns", *stretch, max_points=MOST_POINTS)
    return {cause: float(values.sum()) / NS for cause, values in waits.values.items()}
