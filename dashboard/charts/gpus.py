"""How busy and how full each GPU was."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from dashboard.charts.canvas import time_chart
from dashboard.frames.gpus import GpuCurves
from dashboard.frames.marks import Marks
from dashboard.frames.series import Window
from dashboard.theme import CATEGORICAL


def gpu_chart(gpus: Sequence[GpuCurves], *, window: Window, marks: Marks, revision: str) -> Any:
    """Return utilisation as a line and memory in use as a dotted one, a colour for each GPU.

    A GPU is named once: a legend of both lines of many GPUs would leave a phone no room to draw.
    """
    figure = time_chart(window=window, marks=marks, revision=revision, unit="share")
    for index, gpu in enumerate(gpus):
        colour = CATEGORICAL[index % len(CATEGORICAL)]
        lines = (("utilisation", gpu.utilization, "solid"), ("memory in use", gpu.memory, "dot"))
        measured = [line for line in lines if np.isfinite(line[1]).any()]
        for number, (name, curve, dash) in enumerate(measured):
            figure.add_trace(
                go.Scatter(
                    x=gpu.times,
                    y=curve,
                    name=gpu.label,
                    legendgroup=gpu.label,
                    showlegend=number == 0,
                    mode="lines+markers",
                    marker={"size": 3},
                    line={"color": colour, "width": 1.6, "dash": dash},
                    hovertemplate=f"{name} %{{y:.1%}}",
                )
            )
    figure.update_yaxes(tickformat=".0%", range=[0, 1])
    return figure
