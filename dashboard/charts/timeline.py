"""One request's life: a bar per phase on one line, a marker per moment."""

from collections.abc import Sequence
from typing import Any, Final

import plotly.graph_objects as go

from dashboard.charts.canvas import mark_text
from dashboard.formats import nanoseconds, words
from dashboard.frames.timeline import Bar, Point, Timeline
from dashboard.theme import DECODE, PREFILL, UNKNOWN, WAIT_CAUSE_COLOURS

LABEL_SHARE: Final = 0.07  # of the time shown, that one label takes
POINT_SYMBOLS = {
    "arrive": "triangle-down", "admit": "triangle-right", "first token": "star",
    "preempt": "x", "resume": "triangle-right", "fork": "diamond", "other": "circle-open",
    "end": "square", "reject": "x",
}  # fmt: skip


def phase_colour(phase: str) -> str:
    """Return a phase's colour."""
    return {"prefill": PREFILL, "decode": DECODE, **WAIT_CAUSE_COLOURS}.get(phase, UNKNOWN)


def phase_name(bar: Bar) -> str:
    """Return what the legend calls a phase."""
    if bar.phase == "unknown wait":
        return "waits, cause not known"
    return f"waits: {words(bar.phase)}" if bar.waiting else bar.phase


def timeline_chart(timeline: Timeline, *, revision: str) -> Any:
    """Return the timeline, one legend entry per phase."""
    figure = go.Figure()
    for name in dict.fromkeys(phase_name(bar) for bar in timeline.bars):
        bars = [bar for bar in timeline.bars if phase_name(bar) == name]
        figure.add_trace(
            go.Bar(
                base=[bar.start_ns / 1e6 for bar in bars],
                x=[(bar.end_ns - bar.start_ns) / 1e6 for bar in bars],
                y=[0] * len(bars),
                orientation="h",
                name=name,
                width=0.5,
                marker={"color": phase_colour(bars[0].phase), "line": {"width": 0}},
                customdata=[nanoseconds(bar.end_ns - bar.start_ns) for bar in bars],
                hovertemplate="%{customdata}<extra>" + name + "</extra>",
            )
        )
    add_points(figure, timeline)
    figure.update_layout(
        height=200,
        barmode="overlay",
        margin={"l": 8, "r": 8, "t": 36, "b": 46},
        legend={"orientation": "h", "x": 0, "y": 1.05, "yanchor": "bottom"},
        uirevision=revision,
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
    )
    figure.update_xaxes(type="date", showgrid=True, nticks=6, tickangle=0)
    figure.update_yaxes(visible=False, range=[-0.4, 0.8])
    return figure


def add_points(figure: Any, timeline: Timeline) -> None:
    """Add the moments above the bars; labels that would overlap are left to hover."""
    figure.add_trace(
        go.Scatter(
            x=[point.t_ns / 1e6 for point in timeline.points],
            y=[0.4] * len(timeline.points),
            mode="markers+text",
            text=point_labels(timeline.points),
            textposition="top center",
            textfont={"size": 10},
            marker={
                "size": 9,
                "color": UNKNOWN,
                "symbol": [POINT_SYMBOLS[point.name] for point in timeline.points],
            },
            customdata=[[point.name, mark_text(point.text)] for point in timeline.points],
            hovertemplate="%{customdata[0]} %{x|%H:%M:%S.%L}<br>%{customdata[1]}<extra></extra>",
            showlegend=False,
        )
    )


def point_labels(points: Sequence[Point]) -> list[str]:
    """Return a label per point, empty where the one before it is too close; the last is kept."""
    labels: list[str] = []
    if not points:
        return labels
    last = points[-1]
    reach = (last.t_ns - points[0].t_ns) * LABEL_SHARE
    free_from: float = points[0].t_ns
    for point in points:
        fits = point is last or free_from <= point.t_ns <= last.t_ns - reach
        labels.append(point.name if fits and point.name != "other" else "")
        if labels[-1]:
            free_from = point.t_ns + reach
    return labels
