"""How long to leave a database, or whoever takes nothing now, alone. Pure but for the draw."""

import random
from typing import Final

FIRST_SECONDS: Final = 0.25
MOST_SECONDS: Final = 8.0


class Backoff:
    """Doubles the pause after each failure, up to a bound; the first success ends it.

    A quarter of each pause is drawn, so that the agents of a fleet do not all come back to a
    restarted server in the same instant.
    """

    def __init__(
        self,
        rng: random.Random | None = None,
        *,
        first_seconds: float = FIRST_SECONDS,
        most_seconds: float = MOST_SECONDS,
    ) -> None:
        self._rng = rng or random.Random()
        self._first_seconds = first_seconds
        self._most_seconds = most_seconds
        self._failures = 0
        self._not_before = 0.0

    @property
    def failures(self) -> int:
        """Failures since the last success."""
        return self._failures

    def failed(self, now: float) -> float:
        """Note a failure at `now` (any monotonic seconds); return the seconds to wait."""
        whole = min(self._most_seconds, self._first_seconds * 2.0 ** min(self._failures, 16))
        pause = whole * self._rng.uniform(0.75, 1.0)
        self._failures += 1
        self._not_before = now + pause
        return pause

    def worked(self) -> None:
        """Note a success: nothing is waited for any longer."""
        self._failures = 0
        self._not_before = 0.0

    def is_due(self, now: float) -> bool:
        """Say whether it may be tried."""
        return now >= self._not_before
