"""What every time chart marks: restarts, gaps, changed configurations, leaks, failed audits."""

from collections.abc import Sequence
from dataclasses import dataclass

from agent.read_models import GapRow, Mark
from dashboard.frames.series import Window

MOST_MARKS = 40


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch known to be missing."""

    start_ns: int
    end_ns: int
    text: str


@dataclass(frozen=True, slots=True)
class Marks:
    """Moments and missing stretches within one window; `left_out` marks did not fit."""

    moments: list[Mark]
    spans: list[Span]
    left_out: int = 0


def marks_of(marks: Sequence[Mark], gaps: Sequence[GapRow], window: Window) -> Marks:
    """Return the window's marks, the newest forty, and its gaps as spans."""
    inside = [mark for mark in marks if window.start_ns <= mark.t_ns <= window.end_ns]
    spans = [
        Span(max(gap.start_ns, window.start_ns), min(gap.end_ns, window.end_ns), gap.why)
        for gap in gaps
        if gap.end_ns > window.start_ns and gap.start_ns < window.end_ns
    ]
    return Marks(inside[-MOST_MARKS:], spans, max(0, len(inside) - MOST_MARKS))
