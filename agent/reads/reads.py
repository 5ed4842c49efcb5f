"""The only reading side of the store: what the dashboard, the exporter and the commands ask.

A `Reads` never writes: SQLite is opened with `mode=ro`, Postgres in read-only transactions. It may
be kept and used from several threads; every call takes a connection of its own from the pool.
A store that fails later (deleted, locked, damaged, the server gone) raises `StoreUnreadable`.
"""

from collections.abc import Iterator, Sequence

from agent.baselines.side import Side
from agent.block_map import BlockMap
from agent.head_of_line import HeadOfLine
from agent.pool_usage import LeakReport, PoolUsage
from agent.reads import baselines as reads_baselines
from agent.reads import block_map as reads_block_map
from agent.reads import events as reads_events
from agent.reads import health as reads_health
from agent.reads import pages as reads_pages
from agent.reads import requests as reads_requests
from agent.reads import runs as reads_runs
from agent.reads import series as reads_series
from agent.reads import usage as reads_usage
from agent.reads import windows as reads_windows
from agent.reads.baselines import BaselineRow, StoredBaseline
from agent.reads.broken_laws import BrokenLaw, read_broken_laws
from agent.reads.gpus import GpuHistory, read_gpus
from agent.reads.incident_reads import IncidentReads
from agent.reads.models import (
    ClockStep,
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
    TenantRow,
    WaitingSequence,
)
from agent.reads.pages import PAGE_ROWS, Page
from agent.reads.tiers import Window
from agent.rollups.histogram import Histogram
from agent.store.connection import open_for_reading, parse_address
from agent.store.revision import check_revision


class Reads(IncidentReads):
    """Answers questions about one store; see `open_reads`."""

    def engines(self) -> list[EngineRow]:
        """Return the newest run of every engine, sorted by engine name."""
        with self._connection() as connection:
            return reads_runs.read_engines(connection)

    def runs(self, engine: str) -> list[RunRow]:
        """Return all runs of one engine, the newest first."""
        with self._connection() as connection:
            return reads_runs.read_runs(connection, engine)

    def run(self, run_key: int) -> RunRow | None:
        """Return one run; None if there is none of that key."""
        with self._connection() as connection:
            return reads_runs.read_run(connection, run_key)

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
        `agent.rollups.scalars`; an unknown one raises `UnknownMetricError`. Intervals without a row
        are absent from `t_ns`; a NULL is NaN.
        """
        window = Window(start_ns, end_ns, max_points)
        with self._connection() as connection:
            return reads_series.read_series(connection, run_key, metrics, window)

    def latencies(
        self, run_key: int, metric: str, start_ns: int, end_ns: int, max_points: int = 2000
    ) -> LatencySeries:
        """Return a latency's count and quantiles per interval, in seconds."""
        window = Window(start_ns, end_ns, max_points)
        with self._connection() as connection:
            return reads_series.read_latencies(connection, run_key, metric, window)

    def latency_summary(
        self, run_key: int, metric: str, start_ns: int, end_ns: int
    ) -> LatencySummary | None:
        """Return a latency's quantiles over the whole window; None if nothing was measured."""
        window = Window(start_ns, end_ns)
        with self._connection() as connection:
            return reads_series.read_latency_summary(connection, run_key, metric, window)

    def latency_histogram(self, run_key: int, metric: str, start_ns: int, end_ns: int) -> Histogram:
        """Return a latency's samples of the whole window; empty if nothing was measured."""
        window = Window(start_ns, end_ns)
        with self._connection() as connection:
            return reads_series.read_latency_histogram(connection, run_key, metric, window)

    def labelled(
        self, run_key: int, family: str, start_ns: int, end_ns: int, max_points: int = 2000
    ) -> LabelledSeries:
        """Return one labelled family (`rejected`, `finished`, `wait_ns`, …) per label value."""
        window = Window(start_ns, end_ns, max_points)
        with self._connection() as connection:
            return reads_series.read_labelled(connection, run_key, family, window)

    def block_map(self, run_key: int, at_ns: int | None = None) -> BlockMap | None:
        """Return every block's state, count and owners at a moment (None: the newest stored).

        Inside the detail horizon the map is exact: a snapshot plus the chunks up to that moment.
        Beyond it the nearest snapshot is returned with `exact=False` and its age. None if the run
        has no snapshot at all.
        """
        with self._connection() as connection:
            return reads_block_map.read_block_map(connection, run_key, at_ns)

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
        window = Window(start_ns, end_ns, limit)
        with self._connection() as connection:
            return reads_requests.read_requests(
                connection,
                run_key,
                window,
                state=state,
                tenant=tenant,
                order=RequestOrder(order),
            )

    def waiting(self, run_key: int) -> list[WaitingSequence]:
        """Return what those need who wait for blocks or for anything else, a bounded number."""
        with self._connection() as connection:
            return reads_requests.read_waiting(connection, run_key)

    def request(self, run_key: int, owner: int) -> RequestRow | None:
        """Return one sequence by its number."""
        with self._connection() as connection:
            return reads_requests.read_request(connection, run_key, owner)

    def mean_prompt_tokens(self, run_key: int, start_ns: int, end_ns: int) -> float | None:
        """Return the mean prompt of the requests that arrived in a window; None: none did."""
        with self._connection() as connection:
            return reads_requests.read_mean_prompt(connection, run_key, Window(start_ns, end_ns))

    def request_events(self, run_key: int, owner: int) -> list[RequestEvent]:
        """Return a sequence's timeline, drawn from the stored chunks; empty beyond retention."""
        with self._connection() as connection:
            return reads_events.read_request_events(connection, run_key, owner)

    def usage(self, run_key: int) -> PoolUsage | None:
        """Return how full the pool was last, in blocks and in slots; None before it is known."""
        with self._connection() as connection:
            return reads_usage.read_usage(connection, run_key)

    def leak_report(self, run_key: int) -> LeakReport:
        """Return the blocks whose references were never released, by owner."""
        with self._connection() as connection:
            return reads_usage.read_leak_report(connection, run_key)

    def head_of_line(self, run_key: int) -> HeadOfLine | None:
        """Return who waits for blocks with others behind that could run; None: nobody does."""
        with self._connection() as connection:
            return reads_usage.read_head_of_line(connection, run_key)

    def tenants(self, run_key: int, start_ns: int, end_ns: int) -> list[TenantRow]:
        """Return what each tenant's sequences alive in the window came to."""
        with self._connection() as connection:
            return reads_usage.read_tenants(connection, run_key, Window(start_ns, end_ns))

    def marks(self, run_key: int, start_ns: int, end_ns: int) -> list[Mark]:
        """Return restarts, gaps, changed configurations, leaks and failed audits in a window."""
        window = Window(start_ns, end_ns)
        with self._connection() as connection:
            return reads_health.read_marks(connection, run_key, window)

    def gaps(self, run_key: int) -> list[GapRow]:
        """Return the stretches known to be missing, oldest first."""
        with self._connection() as connection:
            return reads_health.read_gaps(connection, run_key)

    def clock_steps(self, run_key: int, start_ns: int, end_ns: int) -> list[ClockStep]:
        """Return the steps of the engine's wall clock in a window, oldest first."""
        with self._connection() as connection:
            return reads_health.read_clock_steps(connection, run_key, Window(start_ns, end_ns))

    def totals(self, run_key: int) -> dict[str, KindTotal]:
        """Return events stored and lost per kind name, for every kind seen."""
        with self._connection() as connection:
            return reads_health.read_totals(connection, run_key)

    def telemetry(self, run_key: int) -> TelemetryHealth:
        """Return how much of the stream has arrived and how fresh it is."""
        with self._connection() as connection:
            return reads_health.read_telemetry(connection, run_key)

    def hash_bytes(self, run_key: int) -> int:
        """Return how many bytes of a run's stored chunks hold content hashes."""
        with self._connection() as connection:
            return reads_health.read_hash_bytes(connection, run_key)

    def leaks(self, run_key: int) -> list[Leak]:
        """Return blocks that outlived their owner, open ones first."""
        with self._connection() as connection:
            return reads_health.read_leaks(connection, run_key)

    def pages(
        self, table: str, run_key: int, start_ns: int, end_ns: int, page_rows: int = PAGE_ROWS
    ) -> Iterator[Page]:
        """Yield the rows of one of `agent.reads.pages.PAGED` in `[start_ns, end_ns)`, by key.

        Each page is read in a transaction of its own, when it is asked for.
        """
        window = Window(start_ns, end_ns, page_rows)
        return reads_pages.iterate_pages(self._connection, table, run_key, window)

    def rollup_pages(
        self, run_key: int, tier_seconds: int, start_ns: int, end_ns: int
    ) -> Iterator[Page]:
        """Yield every interval of a tier that has values in `[start_ns, end_ns)`, oldest first.

        The interval that holds `start_ns` is included. Numbers are exact; NULL is None.
        """
        stretch = Window(start_ns, end_ns).tier((tier_seconds,))
        return reads_pages.iterate_rollup_pages(self._connection, run_key, stretch)

    def broken_laws(self, run_key: int) -> list[BrokenLaw]:
        """Return the laws and audits that did not hold, those that do not now first."""
        with self._connection() as connection:
            return read_broken_laws(connection, run_key)

    def gpus(self, start_ns: int, end_ns: int) -> GpuHistory:
        """Return what each GPU did minute by minute, and which drivers could not be asked."""
        with self._connection() as connection:
            return read_gpus(connection, Window(start_ns, end_ns))

    def baselines(self) -> list[BaselineRow]:
        """Return the saved baselines, the newest first."""
        with self._connection() as connection:
            return reads_baselines.read_baselines(connection)

    def baseline(self, name: str) -> StoredBaseline:
        """Return one saved baseline with its series; `BaselineNotFound` if there is none."""
        with self._connection() as connection:
            return reads_baselines.read_baseline(connection, name)

    def newest_window(self, engine: str | None, seconds: float, *, back_seconds: float = 0) -> Side:
        """Return the newest window of an engine, or the one so many seconds before it.

        What cannot be had raises `BaselineRefused`; its text says what can.
        """
        with self._connection() as connection:
            return reads_windows.read_newest(connection, engine, seconds, back_seconds)

    def window_until(self, engine: str | None, seconds: float, end_ns: int) -> Side:
        """Return an engine's window that ends at a moment of the past.

        What cannot be had raises `BaselineRefused`; its text says what can.
        """
        with self._connection() as connection:
            return reads_windows.read_until(connection, engine, seconds, end_ns)


def open_reads(url: str) -> Reads:
    """Open a store for reading.

    Args:
        url: The path of an SQLite file, or an SQLAlchemy URL (`sqlite:///…`, `postgresql://…`).

    Raises:
        StoreNotFound: Nothing is there, or it cannot be reached.
        StoreTooNew: A newer kvpulse wrote it.
        StoreTooOld: It lacks a revision; `kvpulse db upgrade` brings it up to date.
    """
    address = parse_address(url)
    engine = open_for_reading(address)
    try:
        check_revision(engine, address)
    except BaseException:
        engine.dispose()
        raise
    return Reads(engine, address.label)
