"""How many days one run may have rows in: each makes tables on Postgres.

A clock runs no faster than ours, so a run of a real engine begins a day each day. A simulated one
may go through the year of a trace in minutes. What goes beyond that is damage or malice, and is
refused before a table is made for it.
"""

from dataclasses import dataclass, field
from typing import Final

from agent.errors import DaysRefused
from agent.store.partitions import DAY_NS, Partition

MOST_DAYS: Final = 400  # and one for each day that passes
LATEST_NS: Final = 1 << 62  # the year 2116
DAY_SECONDS: Final = 86_400


@dataclass(slots=True)
class RunDays:
    """The days in which a run has had rows since its writer was opened."""

    stream: str
    opened_seconds: float  # on a monotonic clock
    _days: set[int] = field(default_factory=set)

    def allow(self, wanted: set[Partition], now_seconds: float) -> None:
        """Take in the partitions that a commit needs.

        Raises:
            DaysRefused: They are too many, or of a time that no clock shows.
        """
        for partition in wanted:
            if partition.start_ns < 0 or partition.end_ns > LATEST_NS:
                found = f"a time {partition.start_ns // DAY_NS:,} days from 1970"
                raise DaysRefused(self.stream, found, "stored are those from 1970 to 2116")
        days = {p.start_ns // DAY_NS for p in wanted if p.end_ns - p.start_ns == DAY_NS}
        most = MOST_DAYS + int((now_seconds - self.opened_seconds) // DAY_SECONDS)
        if len(self._days | days) > most:
            raise DaysRefused(self.stream, f"times in more than {most} days", "which no clock does")
        self._days |= days
