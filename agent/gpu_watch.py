"""Look at the GPUs, show and keep the answer, and say what is missing."""

import logging
from typing import Final, Protocol

from agent.gpus import GpuReading
from agent.live_view import LiveView
from agent.log_limit import OncePerHour
from agent.sources.nvml import NvmlSource

LOGGER: Final = logging.getLogger(__name__)


class GpuNotes(Protocol):
    """Keeps what looks at the GPUs found."""

    def note(self, reading: GpuReading) -> None:
        """Take in a look; raises nothing."""


class GpuWatch:
    """Asks whenever it is told to; meant for a thread of its own, since a driver may hang."""

    def __init__(
        self,
        source: NvmlSource,
        view: LiveView,
        log_limit: OncePerHour,
        history: GpuNotes | None = None,
    ) -> None:
        self._source = source
        self._history = history
        self._view = view
        self._log_limit = log_limit

    def look(self) -> None:
        """Ask once; what is missing is one line per cause and hour."""
        reading = self._source.read()
        self._view.note_gpus(reading)
        if self._history is not None:
            self._history.note(reading)
        for cause, gpus in causes(reading).items():
            if self._log_limit.is_due(cause):
                LOGGER.info("%s%s", cause, f" (GPU {', '.join(gpus)})" if gpus else "")


def causes(reading: GpuReading) -> dict[str, list[str]]:
    """Return why figures are not available, and of which GPUs."""
    if reading.problem is not None:
        return {f"GPU figures are not available: {reading.problem}": []}
    found: dict[str, list[str]] = {}
    for gpu in reading.gpus:
        for figure, why in gpu.missing.items():
            found.setdefault(f"GPU {figure.value} is not available: {why}", []).append(gpu.gpu)
    return found
