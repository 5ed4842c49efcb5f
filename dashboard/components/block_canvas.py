"""The block map's grid: one crisp cell per block on a canvas, with hover, keyboard and picking.

A canvas and not a Plotly heatmap: cells stay whole pixels at any width, the number of columns
follows the width, and 16,384 cells paint in a few milliseconds. What crosses the wire is one byte
per block for the colour and 16 more for what hover tells.
"""

from base64 import b64encode
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from streamlit.components.v2 import component
from streamlit.components.v2.types import ComponentRenderer

from dashboard.frames.block_grid import GridView, ages

if TYPE_CHECKING:
    from agent.block_map import BlockMap

FOLDER = Path(__file__).parent


def pack(values: npt.NDArray[Any], dtype: str) -> str:
    """Return an array's little-endian bytes as base64."""
    return b64encode(np.ascontiguousarray(values, np.dtype(dtype)).tobytes()).decode()


def payload_of(blocks: "BlockMap", view: GridView) -> dict[str, Any]:
    """Return what the browser needs to draw the grid and answer a hover."""
    return {
        "total": len(blocks.state),
        "blockSize": blocks.block_size,
        "atNs": str(blocks.at_ns),
        "classes": pack(view.classes, "u1"),
        "flags": pack(view.flags, "u1"),
        "state": pack(blocks.state, "u1"),
        "count": pack(np.clip(blocks.count, 0, 65_535), "<u2"),
        "owner": pack(blocks.owner, "<i4"),
        "tenant": pack(np.clip(blocks.tenant, 0, 65_535), "<u2"),
        "age": pack(ages(blocks), "<f4"),
        "filled": pack(np.clip(blocks.filled, -1, 32_767), "<i2"),
        "palette": [
            {"colour": swatch.colour, "hatched": swatch.hatched, "label": swatch.label}
            for swatch in view.swatches
        ],
        "tenants": {str(key): name for key, name in blocks.tenants.items()},
        "leaksAreRed": view.leaks_are_red,
        "anyLit": view.num_lit > 0,
    }


def register() -> ComponentRenderer:
    """Register the component with Streamlit; call once per run of the entry script."""
    return component(
        "kvpulse_block_canvas",
        html='<div class="grid"><canvas tabindex="0" role="img"></canvas>'
        '<div class="tip" role="status" hidden></div></div>',
        css=(FOLDER / "block_canvas.css").read_text(),
        js=(FOLDER / "block_canvas.js").read_text(),
    )
