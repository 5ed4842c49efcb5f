"""Events stored and lost per second."""

from typing import Any

import numpy as np
import plotly.graph_objects as go

from dashboard.charts.canvas import time_chart
from dashboard.frames.marks import Marks
from dashboard.frames.series import Curves, Window
from dashboard.theme import ACTIVE, LEAKED


def event_rate_chart(curves: Curves, *, window: Window, marks: Marks, revision: str) -> Any:
    """Return stored events as a line, lost ones as red bars wherever there were any."""
    figure = time_chart(window=window, marks=marks, revision=revision, unit="events per s")
    figure.add_trace(
        go.Scatter(
            x=curves.times,
            y=curves.values["events_stored"],
            name="stored",
            mode="lines",
            line={"color": ACTIVE, "width": 1.6},
            hovertemplate="%{y:,.0f}",
        )
    )
    if np.nansum(curves.values["events_lost"]) > 0:
        figure.add_trace(
            go.Bar(
                x=curves.times,
                y=curves.values["events_lost"],
                name="lost",
                width=curves.tier_seconds * 1000,
                offset=0,
                marker={"color": LEAKED, "line": {"width": 0}},
                hovertemplate="%{y:,.0f}",
            )
        )
    return figure
