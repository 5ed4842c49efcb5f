"""Sharing over time: what was found, references beside blocks, and what was copied or swapped."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import plotly.graph_objects as go

from dashboard.charts.canvas import time_chart
from dashboard.charts.rates import add_bars
from dashboard.frames.marks import Marks
from dashboard.frames.series import Curves, Window
from dashboard.frames.tenants import OTHERS
from dashboard.theme import ACTIVE, CACHED, CATEGORICAL, FREE, HOLDERS

TOKENS = {
    "prefill_tokens": ("computed", "#94a3b8"),
    "prefix_hit_tokens": ("found, fresh prompts", CACHED),
    "resume_hit_tokens": ("found again on resume", "#7c3aed"),
}
MOVES = {
    "copied": ("copied on write", CATEGORICAL[2]),
    "swapped_out": ("swapped out", CATEGORICAL[3]),
    "swapped_in": ("swapped in", CATEGORICAL[5]),
}


def tokens_chart(curves: Curves, *, window: Window, marks: Marks, revision: str) -> Any:
    """Return prompt tokens per second: computed, found by new prompts, found again."""
    return _bars(TOKENS, "tokens per s", "%{y:,.0f}", curves, window, marks, revision)


def moves_chart(curves: Curves, *, window: Window, marks: Marks, revision: str) -> Any:
    """Return blocks copied and swapped per second."""
    return _bars(MOVES, "blocks per s", "%{y:,.1f}", curves, window, marks, revision)


def _bars(
    names: dict[str, tuple[str, str]],
    unit: str,
    hover: str,
    curves: Curves,
    window: Window,
    marks: Marks,
    revision: str,
) -> Any:
    figure = time_chart(window=window, marks=marks, revision=revision, unit=unit)
    for name, (label, colour) in names.items():
        if np.nansum(curves.values[name]) > 0:
            add_bars(figure, curves, label, curves.values[name], colour, hover)
    figure.update_layout(barmode="stack")
    return figure


def references_chart(curves: Curves, *, window: Window, marks: Marks, revision: str) -> Any:
    """Return references above active blocks: the distance is what need not be stored."""
    figure = time_chart(window=window, marks=marks, revision=revision, unit="blocks")
    for name, label, colour, fill in (
        ("active_blocks", "active blocks", ACTIVE, None),
        ("logical_blocks", "references to them", "#0d9488", "tonexty"),
    ):
        figure.add_trace(
            go.Scatter(
                x=curves.times,
                y=curves.values[name],
                name=label,
                mode="lines",
                line={"width": 1.6, "color": colour, "shape": "hv"},
                fill=fill,
                fillcolor="rgba(13,148,136,0.18)",
                hovertemplate="%{y:,.0f}",
            )
        )
    return figure


def tenant_colours(*charts: Curves) -> dict[str, str]:
    """Give each tenant one colour in all of `charts`; those folded together are grey."""
    names = dict.fromkeys(name for curves in charts for name in curves.values if name != OTHERS)
    colours = {name: HOLDERS[index % len(HOLDERS)] for index, name in enumerate(names)}
    return {**colours, OTHERS: FREE}


def tenants_chart(
    curves: Curves,
    *,
    window: Window,
    marks: Marks,
    revision: str,
    unit: str,
    colours: Mapping[str, str],
) -> Any:
    """Return one bar layer for each tenant, the largest at the bottom."""
    figure = time_chart(window=window, marks=marks, revision=revision, unit=unit)
    for name, curve in curves.values.items():
        add_bars(figure, curves, name, curve, colours[name], "%{y:,.1f}")
    figure.update_layout(barmode="stack")
    return figure
