"""Saved baselines as pages ask for them."""

from dataclasses import dataclass

from agent.baselines.errors import BaselineError
from agent.baselines.traffic import Traffic
from agent.reads.baselines import StoredBaseline
from agent.reads.reads import Reads
from dashboard.frames.baselines import Listed


@dataclass(frozen=True, slots=True)
class SavedData:
    """Asks one store for its baselines."""

    reads: Reads

    def listed(self) -> list[Listed]:
        """Return what is saved, the newest first, with the traffic of each."""
        return [Listed(row, self._traffic(row.name)) for row in self.reads.baselines()]

    def baseline(self, name: str) -> StoredBaseline:
        """Return one baseline.

        Raises:
            BaselineError: It is gone or damaged.
        """
        return self.reads.baseline(name)

    def _traffic(self, name: str) -> Traffic | None:
        try:
            return self.reads.baseline(name).side.traffic
        except BaselineError:  # damaged, or deleted just now: the row says what it can
            return None
