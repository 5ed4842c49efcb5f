"""A Plotly chart that stays in place: new data goes into the chart that is on the page.

`st.plotly_chart` names a chart by a hash of its data, so each refresh throws it away and builds
another: it blinks, and a reader's zoom is lost. Here the browser keeps one chart for each key.
The library itself comes from the installed `plotly` package, over the dashboard's own server.
"""

from pathlib import Path
from typing import Any

import plotly
import streamlit.components.v1 as served_files
from streamlit.components.v2 import component

FOLDER = Path(__file__).parent
LIBRARY = Path(plotly.__file__).parent / "package_data"


def draw_figure(figure: Any, *, key: str) -> None:
    """Draw a figure that has a height, as wide as its place."""
    height = int(figure.layout.height)
    # Only its folder is used: this serves `plotly.min.js` at a path of our own server.
    library = served_files.declare_component("plotly_library", path=LIBRARY)
    mount = component(
        "kvpulse_figure",
        html='<div class="kv-plot"></div>',
        css=(FOLDER / "figure.css").read_text(),
        js=(FOLDER / "figure.js").read_text(),
        isolate_styles=False,  # the library adds its own rules to the page
    )
    data = {
        "figure": figure.to_json(),
        "height": height,
        "library": f"component/{library.name}/plotly.min.js",
    }
    mount(key=f"figure-{key}", data=data, height=height)
