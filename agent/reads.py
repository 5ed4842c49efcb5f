"""The only reading side of the store: what the dashboard, the exporter and the commands ask.

A `Reads` never writes: SQLite is opened with `mode=ro`, Postgres in read-only transactions. It may
be kept and used from several threads; every call takes a connection of its own from the pool.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from agent.read_models import (
    EngineRow,
    GapRow,
    KindTotal,
    LabelledSeries,
    LatencySeries,
    LatencySummary,
    Leak,
    Mark,
    RequestEvent,
    RequestOrder,
    RequestRow,
    RequestState,
    RunRow,
    Series,
    TelemetryHealth,
)

if TYPE_CHECKING:
    from agent.block_map import BlockMap


class Reads:
    """Answers questions about one store; see `open_reads`."""

    def engines(self) -> list[EngineRow]:
        """Return the newest run of every engine, sorted by engine name."""
        raise NotImplementedError

    def runs(self, engine: str) -> list[RunRow]:
        """Return all runs of one engine, the newest first."""
        raise NotImplementedError

    def series(
        self,
        run_key: int,
        metrics: Sequence[str],
        start_ns: int,
        end_ns: int,
        max_points: int = 2000,
    ) -> Series:
        """Return scalar rollup metrics in `[start_ns, end_ns)`.

        The finest tier is chosen that gives at most `max_points` points. Names are those of
        `agent.rollup_metrics`; an unknown one raises `UnknownMetricError`. Intervals without a row
        are absent from `t_ns`; a NULL is NaN.
        """
        raise NotImplementedError

    def latencies(
        self, run_key: int, metric: str, start_ns: int, end_ns: int, max_points: int = 2000
    ) -> LatencySeries:
        """Return a latency's count and quantiles per interval, in seconds."""
        raise NotImplementedError

    def latency_summary(
        self, run_key: int, metric: str, start_ns: int, end_ns: int
    ) -> LatencySummary | None:
        """Return a latency's quantiles over the whole window; None if nothing was measured."""
        raise NotImplementedError

    def labelled(
        self, run_key: int, family: str, start_ns: int, end_ns: int, max_points: int = 2000
    ) -> LabelledSeries:
        """Return one labelled family (`rejected`, `finished`, `wait_ns`, …) per label value."""
        raise NotImplementedError

    def block_map(self, run_key: int, at_ns: int | None = None) -> "BlockMap | None":
        """Return every block's state, count and owners at a moment (None: the newest stored).

        Inside the detail horizon the map is exact: a snapshot plus the chunks up to that moment.
        Beyond it the nearest snapshot is returned with `exact=False` and its age. None if the run
        has no snapshot at all.
        """
        raise NotImplementedError

    def requests(
        self,
        run_key: int,
        start_ns: int,
        end_ns: int,
        *,
        limit: int = 500,
        state: RequestState | None = None,
        tenant: str | None = None,
        order: RequestOrder | str = RequestOrder.STARTED,
    ) -> list[RequestRow]:
        """Return the sequences alive at any moment of `[start_ns, end_ns)`."""
        raise NotImplementedError

    def request(self, run_key: int, owner: int) -> RequestRow | None:
        """Return one sequence by its number."""
        raise NotImplementedError

    def request_events(self, run_key: int, owner: int) -> list[RequestEvent]:
        """Return a sequence's timeline, drawn from the stored chunks; empty beyond retention."""
        raise NotImplementedError

    def marks(self, run_key: int, start_ns: int, end_ns: int) -> list[Mark]:
        """Return restarts, gaps, changed configurations, leaks and failed audits in a window."""
        raise NotImplementedError

    def gaps(self, run_key: int) -> list[GapRow]:
        """Return the stretches known to be missing, oldest first."""
        raise NotImplementedError

    def totals(self, run_key: int) -> dict[str, KindTotal]:
        """Return events stored and lost per kind name, for every kind seen."""
        raise NotImplementedError

    def telemetry(self, run_key: int) -> TelemetryHealth:
        """Return how much of the stream has arrived and how fresh it is."""
        raise NotImplementedError

    def leaks(self, run_key: int) -> list[Leak]:
        """Return blocks that outlived their owner, open ones first."""
        raise NotImplementedError

    def close(self) -> None:
        """Close every connection."""
        raise NotImplementedError


def open_reads(url: str) -> Reads:
    """Open a store for reading.

    Args:
        url: The path of an SQLite file, or an SQLAlchemy URL (`sqlite:///…`, `postgresql://…`).

    Raises:
        StoreNotFound: Nothing is there, or it cannot be reached.
        StoreTooNew: A newer kvpulse wrote it.
        StoreTooOld: It lacks a revision; `kvpulse db upgrade` brings it up to date.
    """
    raise NotImplementedError
