"""Waits by class and rejections by reason: bars, because a rate is an amount per interval."""

from typing import Any

import numpy as np
import plotly.graph_objects as go

from dashboard.charts.canvas import time_chart
from dashboard.formats import words
from dashboard.frames.marks import Marks
from dashboard.frames.series import Curves, Window
from dashboard.theme import CATEGORICAL, WAIT_CLASS_COLOURS
from kvpulse.events import RejectReason

# A reason keeps its colour whichever others are on the chart.
REASON_COLOURS = {
    reason.name.lower(): CATEGORICAL[index % len(CATEGORICAL)]
    for index, reason in enumerate(RejectReason)
}


def waits_chart(curves: Curves, *, window: Window, marks: Marks, revision: str) -> Any:
    """Return seconds waited per second, stacked by class: 3 means three requests waiting."""
    figure = time_chart(window=window, marks=marks, revision=revision, unit="s waited per s")
    for name, curve in curves.values.items():
        if np.nansum(curve) > 0:
            add_bars(figure, curves, name, curve, WAIT_CLASS_COLOURS[name], "%{y:.2f} s/s")
    figure.update_layout(barmode="stack")
    return figure


def rejections_chart(curves: Curves, *, window: Window, marks: Marks, revision: str) -> Any:
    """Return refused requests per interval, stacked by reason."""
    unit = f"per {interval_words(curves.tier_seconds)}"
    figure = time_chart(window=window, marks=marks, revision=revision, unit=unit)
    for name, curve in curves.values.items():
        colour = REASON_COLOURS.get(name, CATEGORICAL[-1])
        add_bars(figure, curves, words(name), curve, colour, "%{y:,.0f}")
    figure.update_layout(barmode="stack")
    return figure


def add_bars(figure: Any, curves: Curves, name: str, curve: Any, colour: str, hover: str) -> None:
    """Add one label's bars, each as wide as its interval."""
    width_ms = curves.tier_seconds * 1000
    figure.add_trace(
        go.Bar(
            x=curves.times,
            y=curve,
            name=name,
            width=width_ms,
            offset=0,
            marker={"color": colour, "line": {"width": 0}},
            hovertemplate=hover,
        )
    )


def interval_words(seconds: int) -> str:
    """Return an interval's name: `second`, `10 s`, `minute`, `hour`."""
    return {1: "second", 60: "minute", 3600: "hour"}.get(seconds, f"{seconds} s")
