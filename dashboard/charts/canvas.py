"""What every time chart shares: a quiet frame, the time axis, the marks, zoom that survives."""

from typing import Any, Final

import plotly.graph_objects as go

from dashboard.frames.marks import Marks
from dashboard.frames.series import Window
from dashboard.theme import MARK_COLOURS, UNKNOWN

HEIGHT: Final = 250
MARK_PIXELS: Final = 20  # height of a mark's label
AXES_PIXELS: Final = 100  # about what legend, labels and the time axis take of the height


def time_chart(
    *, window: Window, marks: Marks, revision: str, unit: str, height: int = HEIGHT
) -> Any:
    """Return an empty time chart over the window.

    Args:
        window: What the time axis spans, whatever the data covers.
        marks: Drawn behind and above the curves.
        revision: As long as it stays the same, a reader's zoom survives new data.
        unit: Title of the value axis.
        height: Pixels.
    """
    figure = go.Figure()
    figure.update_layout(
        height=height,
        # Room for legend, marks and time labels is set aside: finding it out while drawing shows.
        margin={"l": 8, "r": 8, "t": 56 if marks.moments else 34, "b": 46},
        hovermode="x unified",
        hoverlabel={"namelength": -1},
        legend={"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "traceorder": "normal"},
        uirevision=revision,
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        bargap=0.08,
    )
    figure.update_xaxes(
        range=[window.start_ns / 1e6, window.end_ns / 1e6],
        type="date",
        hoverformat="%H:%M:%S UTC",
        showgrid=False,
        nticks=6,
        tickangle=0,
    )
    figure.update_yaxes(
        title={"text": unit, "standoff": 8, "font": {"size": 12}},
        rangemode="tozero",
        automargin=True,
        nticks=5,
        zeroline=False,
    )
    add_marks(figure, marks)
    return figure


def add_marks(figure: Any, marks: Marks) -> None:
    """Draw gaps as grey stretches and moments as dotted lines with their name above the plot."""
    shapes = [
        {
            "type": "rect", "xref": "x", "yref": "paper", "y0": 0, "y1": 1, "layer": "below",
            "x0": span.start_ns / 1e6, "x1": span.end_ns / 1e6,
            "fillcolor": UNKNOWN, "opacity": 0.22, "line": {"width": 0},
        }
        for span in marks.spans
    ]  # fmt: skip
    notes = []
    for mark in marks.moments:
        colour = MARK_COLOURS.get(mark.kind, UNKNOWN)
        x = mark.t_ns / 1e6
        shapes.append(
            {
                "type": "line", "xref": "x", "yref": "paper", "x0": x, "x1": x, "y0": 0, "y1": 1,
                "line": {"color": colour, "width": 1.5, "dash": "dot"},
            }
        )  # fmt: skip
        notes.append(
            {
                "x": x, "y": 1, "xref": "x", "yref": "paper",
                "yanchor": "bottom", "xanchor": "left",
                "showarrow": False, "text": mark.label,
                "font": {"size": 10, "color": "#ffffff"}, "bgcolor": colour, "borderpad": 2,
                "hovertext": mark_text(mark.text),
            }
        )  # fmt: skip
    figure.update_layout(shapes=shapes, annotations=notes)
    if notes:  # they stand between the legend and the plot, and cover neither
        figure.update_layout(legend={"y": 1 + MARK_PIXELS / (figure.layout.height - AXES_PIXELS)})


def mark_text(text: str) -> str:
    """Return a mark's text for Plotly, which reads a few HTML tags: they stay text."""
    plain = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return plain.replace("\n", "<br>")
