"""One request's life as bars: what it waited for, when it ran, when it lost its blocks."""

from collections.abc import Sequence
from dataclasses import dataclass

from agent.reads.models import RequestEvent, RequestRow

FIRST_CAUSE = "engine_busy"  # until the first `wait`, and again after a preemption
ENDS = frozenset({"finish", "reject"})
POINTS = {
    "arrive": "arrive", "admit": "admit", "first_token": "first token", "preempt": "preempt",
    "resume": "resume", "fork": "fork", "finish": "end", "reject": "reject",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Bar:
    """One stretch: `phase` is a wait cause, `prefill`, `decode`, or `unknown`."""

    start_ns: int
    end_ns: int
    phase: str
    waiting: bool


@dataclass(frozen=True, slots=True)
class Point:
    """One moment worth a marker."""

    t_ns: int
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Timeline:
    """Bars and points in time order; `note` says what the picture cannot show, if anything."""

    bars: list[Bar]
    points: list[Point]
    note: str | None


def timeline_of(events: Sequence[RequestEvent], row: RequestRow, now_ns: int) -> Timeline:
    """Return the timeline from stored events, or from the row's totals where those are gone."""
    known = [event for event in events if event.kind in POINTS or event.kind == "wait"]
    own = [event for event in known if event.about is None]
    if not own:
        return from_totals(row, now_ns)
    bars: list[Bar] = []
    phase, since = None, own[0].t_ns
    for event in own:
        following = next_phase(event, phase)
        if following != phase:
            add_bar(bars, since, event.t_ns, phase)
            phase, since = following, event.t_ns
    if phase is not None:
        add_bar(bars, since, max(now_ns, since), phase)
    points = [
        Point(event.t_ns, POINTS[event.kind] if event in own else "other", event.text)
        for event in known
        if event.kind in POINTS
    ]
    started = own[0].kind in {"arrive", "fork"}
    note = None if started else "Its first events are no longer stored; the picture starts later."
    return Timeline(bars, points, note)


def next_phase(event: RequestEvent, phase: str | None) -> str | None:
    """Return the phase that an event opens; None after the end."""
    if event.kind in ENDS:
        return None
    if event.kind in {"arrive", "preempt"}:
        return FIRST_CAUSE
    if event.kind == "wait":
        return event.cause or "unknown wait"
    if event.kind in {"admit", "resume"}:
        return "prefill"
    if event.kind == "first_token":
        return "decode"
    return "decode" if event.kind == "fork" and phase is None else phase


def add_bar(bars: list[Bar], start_ns: int, end_ns: int, phase: str | None) -> None:
    """Append a stretch unless it is empty."""
    if phase is not None and end_ns > start_ns:
        bars.append(Bar(start_ns, end_ns, phase, phase not in {"prefill", "decode"}))


def from_totals(row: RequestRow, now_ns: int) -> Timeline:
    """Return the phases that the stored row still tells; the order of waits is not known."""
    end_ns = row.ended_at_ns or now_ns
    admitted = row.admitted_at_ns or row.first_token_at_ns
    bars: list[Bar] = []
    if row.arrived_at_ns is not None:
        add_bar(bars, row.arrived_at_ns, admitted or end_ns, largest_cause(row))
    if admitted is not None:
        add_bar(bars, admitted, row.first_token_at_ns or end_ns, "prefill")
    if row.first_token_at_ns is not None:
        add_bar(bars, row.first_token_at_ns, end_ns, "decode")
    moments = (
        (row.arrived_at_ns, "arrive"), (row.admitted_at_ns, "admit"),
        (row.first_token_at_ns, "first token"), (row.ended_at_ns, "end"),
    )  # fmt: skip
    points = [Point(t_ns, name, "") for t_ns, name in moments if t_ns is not None]
    note = "Its events are no longer stored: phases are from totals, waits show the longest cause."
    return Timeline(bars, points, note)


def largest_cause(row: RequestRow) -> str:
    """Return the cause that took most of a request's waiting."""
    waits = {cause: value for cause, value in row.wait_ns.items() if value > 0}
    return max(waits, key=lambda cause: waits[cause]) if waits else "unknown wait"
