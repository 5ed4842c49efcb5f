"""A latency's p50, p95 and p99 over time."""

from typing import Any, Final

import numpy as np
import plotly.graph_objects as go

from agent.reads.models import Float64Array
from dashboard.charts.canvas import time_chart
from dashboard.frames.marks import Marks
from dashboard.frames.series import Curves, Window
from dashboard.theme import QUANTILE_COLOURS

LONE_SIZE: Final = 5


def lone_sizes(curve: Float64Array) -> Float64Array:
    """Return a dot's size for samples between two holes, which no line would show; 0 elsewhere."""
    known = np.concatenate(([False], np.isfinite(curve), [False]))
    lone = known[1:-1] & ~known[:-2] & ~known[2:]
    return np.where(lone, LONE_SIZE, 0).astype(np.float64)


def latency_unit(curves: Curves) -> tuple[str, float]:
    """Return the unit in which the chart's tallest value reads well, and its factor."""
    tallest = max((np.nanmax(c) for c in curves.values.values() if np.isfinite(c).any()), default=1)
    return ("ms", 1000.0) if tallest < 1 else ("s", 1.0)


def latency_chart(curves: Curves, *, window: Window, marks: Marks, revision: str) -> Any:
    """Return the quantiles as lines; intervals without a sample break them."""
    unit, factor = latency_unit(curves)
    figure = time_chart(window=window, marks=marks, revision=revision, unit=unit)
    for name, curve in curves.values.items():
        figure.add_trace(
            go.Scatter(
                x=curves.times,
                y=curve * factor,
                name=name,
                mode="lines+markers",
                marker={"size": lone_sizes(curve)},
                line={"width": 2 if name == "p95" else 1.4, "color": QUANTILE_COLOURS[name]},
                hovertemplate="%{y:.4~g} " + unit,
            )
        )
    return figure
