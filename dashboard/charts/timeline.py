"""One request's life: a bar per phase on one line, a marker per moment."""

from typing import Any

import plotly.graph_objects as go

from dashboard.charts.canvas import mark_text
from dashboard.formats import nanoseconds, words
from dashboard.frames.timeline import Bar, Timeline
from dashboard.theme import DECODE, PREFILL, UNKNOWN, WAIT_CAUSE_COLOURS

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
        height=220,
        barmode="overlay",
        margin={"l": 8, "r": 8, "t": 36, "b": 8},
        legend={"orientation": "h", "x": 0, "y": 1.05, "yanchor": "bottom"},
        uirevision=revision,
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        transition={"duration": 0},
    )
    figure.update_xaxes(type="date", automargin=True, showgrid=True, nticks=6, tickangle=0)
    figure.update_yaxes(visible=False, range=[-0.45, 0.95])
    return figure


def add_points(figure: Any, timeline: Timeline) -> None:
    """Add the moments above the bars."""
    figure.add_trace(
        go.Scatter(
            x=[point.t_ns / 1e6 for point in timeline.points],
            y=[0.4 if index % 2 else 0.62 for index in range(len(timeline.points))],
            mode="markers+text",
            text=["" if point.name == "other" else point.name for point in timeline.points],
            textposition="top center",
            textfont={"size": 10},
            marker={
                "size": 9,
                "color": UNKNOWN,
                "symbol": [POINT_SYMBOLS[point.name] for point in timeline.points],
            },
            customdata=[mark_text(point.text) for point in timeline.points],
            hovertemplate="%{text} %{x|%H:%M:%S.%L}<br>%{customdata}<extra></extra>",
            showlegend=False,
        )
    )
