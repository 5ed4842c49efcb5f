"""How busy and how full each GPU was."""

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from dashboard.charts.canvas import time_chart
from dashboard.frames.gpus import GpuCurves
from dashboard.frames.marks import Marks
from dashboard.frames.series import Window
from dashboard.theme import CATEGORICAL


def gpu_chart(gpus: Sequence[GpuCurves], *, window: Window, marks: Marks, revision: str) -> Any:
    """Return utilisation as a line and memory in use as a dotted one, a colour for each GPU."""
    figure = time_chart(window=window, marks=marks, revision=revision, unit="share")
    for index, gpu in enumerate(gpus):
        colour = CATEGORICAL[index % len(CATEGORICAL)]
        for name, curve, dash in (
            ("utilisation", gpu.utilization, "solid"),
            ("memory in use", gpu.memory, "dot"),
        ):
            figure.add_trace(
                go.Scatter(
                    x=gpu.times,
                    y=curve,
                    name=f"{gpu.label} {name}",
                    mode="lines+markers",
                    marker={"size": 3},
                    line={"color": colour, "width": 1.6, "dash": dash},
                    hovertemplate="%{y:.1%}",
                )
            )
    figure.update_yaxes(tickformat=".0%", range=[0, 1])
    return figure
