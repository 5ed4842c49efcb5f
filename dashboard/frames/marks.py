"""What every time chart marks: restarts, gaps, changed configurations, leaks, failed audits,
clock steps.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from agent.reads.models import GapRow, Mark, MarkKind
from dashboard.formats import words
from dashboard.frames.series import Window

LABELS_ACROSS = 16
TEXTS_SHOWN = 5
# A restart only if another run came before, which a window need not show.
NAMES = {MarkKind.RESTART: "run start", MarkKind.POOL: "pool size"}


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch known to be missing."""

    start_ns: int
    end_ns: int
    text: str


@dataclass(frozen=True, slots=True)
class Moment:
    """One mark, or several of one kind too close to be told apart on a chart."""

    t_ns: int
    kind: MarkKind
    label: str
    text: str


@dataclass(frozen=True, slots=True)
class Marks:
    """Moments and missing stretches within one window."""

    moments: list[Moment]
    spans: list[Span]


def marks_of(marks: Sequence[Mark], gaps: Sequence[GapRow], window: Window) -> Marks:
    """Return the window's marks, close ones of a kind as one, and its gaps as spans."""
    spans = [
        Span(max(gap.start_ns, window.start_ns), min(gap.end_ns, window.end_ns), gap.why)
        for gap in gaps
        if gap.end_ns > window.start_ns and gap.start_ns < window.end_ns
    ]
    moments: list[Moment] = []
    for kind in MarkKind:
        inside = [
            mark
            for mark in sorted(marks, key=lambda mark: mark.t_ns)
            if mark.kind is kind and window.start_ns <= mark.t_ns <= window.end_ns
        ]
        moments += [moment_of(group) for group in close_groups(inside, window)]
    return Marks(sorted(moments, key=lambda moment: moment.t_ns), spans)


def close_groups(marks: Sequence[Mark], window: Window) -> list[list[Mark]]:
    """Split marks of one kind into groups that each fit under one label."""
    reach = (window.end_ns - window.start_ns) // LABELS_ACROSS
    groups: list[list[Mark]] = []
    for mark in marks:
        if groups and mark.t_ns - groups[-1][0].t_ns < reach:
            groups[-1].append(mark)
        else:
            groups.append([mark])
    return groups


def moment_of(group: Sequence[Mark]) -> Moment:
    """Return one mark for a group: its first moment, its number, the first few texts."""
    kind = group[0].kind
    name = NAMES.get(kind, words(kind))
    label = name if len(group) == 1 else f"{name} \u00d7{len(group)}"
    texts = [mark.text for mark in group[:TEXTS_SHOWN]]
    more = len(group) - TEXTS_SHOWN
    if more > 0:
        texts.append(f"and {more} more")
    return Moment(group[0].t_ns, group[0].kind, label, "\n".join(texts))
