"""Moments that a scrubber can stand on."""

from dashboard.formats import NANOSECONDS
from dashboard.frames.series import Window


def whole_seconds(window: Window) -> tuple[int, int]:
    """Return the first and the last whole second inside a window, in nanoseconds."""
    first = -(-window.start_ns // NANOSECONDS) * NANOSECONDS
    last = window.end_ns // NANOSECONDS * NANOSECONDS
    return first, last
