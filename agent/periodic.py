"""Do something again and again on a thread of its own; what hangs there holds up nobody else."""

import threading
from collections.abc import Callable
from typing import Final, Self

STOP_SECONDS: Final = 1.0


class Periodic:
    """Runs `act` at once and then after each pause, for as long as the block lasts.

    `act` raises nothing. One that hangs is not waited for: its thread ends with the process.
    """

    def __init__(self, name: str, act: Callable[[], object], *, pause_seconds: float) -> None:
        self._act = act
        self._pause_seconds = pause_seconds
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"kvpulse-{name}", daemon=True)

    def __enter__(self) -> Self:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Do it no more."""
        self._stop.set()
        self._thread.join(STOP_SECONDS)

    def _run(self) -> None:
        while not self._stop.is_set():
            self._act()
            self._stop.wait(self._pause_seconds)
