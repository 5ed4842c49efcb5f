"""Tell the person at the terminal something, if one is still there."""

import contextlib
import sys


def say(text: str) -> None:
    """Write lines to stderr; a terminal that was closed must not stop the cleaning up."""
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr, flush=True)
