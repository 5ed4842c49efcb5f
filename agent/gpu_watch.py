"""A thread that asks the GPUs now and then and shows the answer; a hanging driver holds only it."""

import logging
import threading
from typing import Final

from agent.gpus import GpuReading
from agent.live_view import LiveView
from agent.log_limit import OncePerHour
from agent.sources.nvml import NvmlSource

LOGGER: Final = logging.getLogger(__name__)
STOP_SECONDS: Final = 1.0


class GpuWatch:
    """Asks until it is stopped."""

    def __init__(
        self, source: NvmlSource, view: LiveView, log_limit: OncePerHour, *, pause_seconds: float
    ) -> None:
        self._source = source
        self._view = view
        self._log_limit = log_limit
        self._pause_seconds = pause_seconds
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kvpulse-gpus", daemon=True)

    def start(self) -> None:
        """Begin to ask."""
        self._thread.start()

    def stop(self) -> None:
        """Ask no more; an answer that hangs is not waited for."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(STOP_SECONDS)

    def look(self) -> None:
        """Ask once, show the answer, and say what is missing: one line per cause and hour."""
        reading = self._source.read()
        self._view.note_gpus(reading)
        for cause, gpus in causes(reading).items():
            if self._log_limit.is_due(cause):
                LOGGER.info("%s%s", cause, f" (GPU {', '.join(gpus)})" if gpus else "")

    def _run(self) -> None:
        while not self._stop.is_set():
            self.look()
            self._stop.wait(self._pause_seconds)
        self._source.close()


def causes(reading: GpuReading) -> dict[str, list[str]]:
    """Return why figures are not available, and of which GPUs."""
    if reading.problem is not None:
        return {f"GPU figures are not available: {reading.problem}": []}
    found: dict[str, list[str]] = {}
    for gpu in reading.gpus:
        for figure, why in gpu.missing.items():
            found.setdefault(f"GPU {figure.value} is not available: {why}", []).append(gpu.gpu)
    return found
