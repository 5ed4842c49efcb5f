"""Say a thing once, and once more only when an hour has passed: so that logs are read."""

from collections.abc import Callable
from typing import Final

PAUSE_SECONDS: Final = 3600.0
MOST_CAUSES: Final = 256  # remembered; beyond it the one told longest ago is forgotten


class OncePerHour:
    """Remembers which causes were told and when."""

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        self._told_at: dict[str, float] = {}

    def is_due(self, cause: str) -> bool:
        """Whether the cause is to be told now; if so, it counts as told."""
        now = self._seconds()
        told_at = self._told_at.get(cause)
        if told_at is not None and now - told_at < PAUSE_SECONDS:
            return False
        self._told_at.pop(cause, None)
        self._told_at[cause] = now
        if len(self._told_at) > MOST_CAUSES:
            del self._told_at[next(iter(self._told_at))]
        return True
