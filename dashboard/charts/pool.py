"""Active, cached and free blocks over time, stacked up to the pool's total."""

from typing import Any

import numpy as np
import plotly.graph_objects as go

from dashboard.charts.canvas import time_chart
from dashboard.frames.marks import Marks
from dashboard.frames.series import Curves, Window, stretches
from dashboard.theme import ACTIVE, CACHED, FREE


def pool_chart(curves: Curves, *, window: Window, marks: Marks, revision: str) -> Any:
    """Return the stacked chart.

    Each unbroken stretch is filled down to zero, the tallest layer first: Plotly's own stacking
    draws a gap as an empty pool, and its fills bridge it.
    """
    figure = time_chart(window=window, marks=marks, revision=revision, unit="blocks", height=300)
    for number, stretch in enumerate(stretches(curves, "active_blocks")):
        add_layers(figure, curves, stretch, in_legend=number == 0)
    figure.add_trace(
        go.Scatter(
            x=curves.times,
            y=curves.values["total_blocks"],
            name="total",
            mode="lines",
            line={"width": 1.5, "color": "#64748b", "dash": "dash"},
            hovertemplate="%{y:,.0f}",
        )
    )
    total = curves.values["total_blocks"]
    if np.isfinite(total).any():
        figure.update_yaxes(range=[0, float(np.nanmax(total)) * 1.04])
    return figure


def add_layers(figure: Any, curves: Curves, stretch: slice, *, in_legend: bool) -> None:
    """Add the three layers of one unbroken stretch."""
    active, cached, free = (
        curves.values[f"{name}_blocks"][stretch] for name in ("active", "cached", "free")
    )
    layers = (
        ("free", active + cached + free, FREE, free),
        ("cached", active + cached, CACHED, cached),
        ("active", active, ACTIVE, active),
    )
    for name, top, colour, own in layers:
        figure.add_trace(
            go.Scatter(
                x=curves.times[stretch],
                y=top,
                name=name,
                legendgroup=name,
                showlegend=in_legend,
                customdata=own,
                mode="lines",
                line={"width": 0.5, "color": colour, "shape": "hv"},
                fill="tozeroy",
                fillcolor=colour,
                hovertemplate="%{customdata:,.0f}",
            )
        )
