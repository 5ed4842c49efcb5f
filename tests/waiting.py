"""Wait for a condition instead of sleeping for a guess."""

import time
from collections.abc import Callable


def wait_until(
    condition: Callable[[], object], *, timeout: float = 10.0, interval: float = 0.01
) -> None:
    """Poll `condition` until it is true; fail the test when `timeout` seconds pass first."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"still not true after {timeout} s: {condition!r}")
        time.sleep(interval)
