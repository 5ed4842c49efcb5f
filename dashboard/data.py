"""What pages ask for: frames made from the store's answers. Views do no arithmetic and no SQL."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from agent.head_of_line import HeadOfLine
from agent.reads.broken_laws import BrokenLaw
from agent.reads.gpus import GpuHistory
from agent.reads.models import (
    EngineRow,
    GapRow,
    KindTotal,
    LabelledSeries,
    Leak,
    RequestOrder,
    RequestRow,
    RequestState,
    RunState,
    Series,
    TelemetryHealth,
    TenantRow,
)
from agent.reads.reads import Reads
from agent.scraped.fingerprint import page_of
from dashboard.config import DashboardConfig
from dashboard.engine_state import EngineState, Provenance
from dashboard.formats import NANOSECONDS
from dashboard.frames.marks import Marks, marks_of
from dashboard.frames.requests import oldest_wait_seconds
from dashboard.frames.series import (
    WAIT_CLASSES,
    Curves,
    Window,
    amounts,
    gauges,
    quantiles,
    rates,
    total_of,
    waits_per_second,
    window_around,
    window_of,
)
from dashboard.frames.sharing import MOVES, SHARING_METRICS, TOKENS, Sharing, sharing_of
from dashboard.frames.status import Facts, is_stale, status_of
from dashboard.frames.strip import STRIP_METRICS, StripFacts, Tile, strip_of
from dashboard.frames.tenants import largest
from dashboard.frames.timeline import Timeline, timeline_of
from dashboard.incidents import IncidentData
from dashboard.saved import SavedData
from dashboard.verdicts import VerdictData

if TYPE_CHECKING:
    from agent.block_map import BlockMap

RECENT_SECONDS = 60
NOW_SECONDS = 5
AROUND_SECONDS = 300
LATENCY_POINTS = 120  # a quantile needs more than one second of samples
WAIT_METRICS = tuple(f"wait_{name}_ns" for name in WAIT_CLASSES)
POOL_METRICS = ("active_blocks", "cached_blocks", "free_blocks", "total_blocks")
RECENT_METRICS = ("arrived", "rejected", "preempted", *WAIT_METRICS)


class Data:
    """Asks one store; `now_ns` is the wall clock of the moment the page is drawn."""

    def __init__(self, reads: Reads, config: DashboardConfig) -> None:
        self._reads = reads
        self.config = config
        self.incidents = IncidentData(reads)
        self.saved = SavedData(reads)
        self.verdicts = VerdictData(reads, config)

    def engines(self) -> list[EngineRow]:
        """Return the newest run of every engine."""
        return self._reads.engines()

    def engine_states(self, now_ns: int) -> list[EngineState]:
        """Return every engine with its status, the worst first."""
        states = [self.engine_state(engine, now_ns) for engine in self.engines()]
        return sorted(states, key=lambda state: (state.status.rank, state.engine.engine))

    def window(self, engine: EngineRow, seconds: int) -> Window:
        """Return the window that ends with the engine's last event."""
        return window_of(
            started_at_ns=engine.started_at_ns,
            last_event_at_ns=engine.last_event_at_ns,
            seconds=seconds,
        )

    def window_around(self, engine: EngineRow, at_ns: int) -> Window:
        """Return some minutes to either side of a moment of the run."""
        end_ns = engine.last_event_at_ns or engine.started_at_ns
        whole = Window(engine.started_at_ns, end_ns + 1)
        return window_around(whole, at_ns, seconds=AROUND_SECONDS)

    def engine_state(self, engine: EngineRow, now_ns: int) -> EngineState:
        """Return what one engine's last minute says."""
        recent = self.window(engine, RECENT_SECONDS)
        series = self._reads.series(engine.run_key, RECENT_METRICS, recent.start_ns, recent.end_ns)
        latest = series.t_ns >= recent.end_ns - NOW_SECONDS * NANOSECONDS
        waits = {
            name: float(series.values[f"wait_{name}_ns"][latest].sum()) / NANOSECONDS
            for name in WAIT_CLASSES
        }
        arrived = total_of(series, "arrived") or 0
        rejected = total_of(series, "rejected") or 0
        age = self.age_seconds(engine, now_ns)
        facts = Facts(
            engine=engine,
            age_seconds=age,
            recent_seconds=recent.seconds,
            waits_by_class=waits,
            oldest_wait_seconds=self._oldest_wait(engine, recent.end_ns),
            arrived=arrived,
            rejected=rejected,
            rejected_by_reason=self.label_totals(engine, "rejected", recent),
            preempted=total_of(series, "preempted") or 0,
            head_of_line=self.head_of_line(engine),
            leaked_blocks=len({leak.block for leak in self.open_leaks(engine)}),
        )
        ttft = self._reads.latency_summary(engine.run_key, "ttft", recent.start_ns, recent.end_ns)
        return EngineState(
            engine=engine,
            status=status_of(facts),
            age_seconds=age,
            stale=is_stale(engine, age),
            rejected_ratio=rejected / arrived if arrived else None,
            ttft_p95_seconds=ttft.p95 if ttft and ttft.count else None,
        )

    def _oldest_wait(self, engine: EngineRow, now_ns: int) -> float | None:
        if not engine.waiting:
            return None
        rows = [
            row
            for state in (RequestState.WAITING, RequestState.PREEMPTED, RequestState.SWAPPED)
            for row in self._reads.requests(
                engine.run_key, now_ns - NANOSECONDS, now_ns, state=state
            )
        ]
        return oldest_wait_seconds(rows, now_ns)

    def age_seconds(self, engine: EngineRow, now_ns: int) -> float | None:
        """Return the wall-clock age of the agent's last commit for this run."""
        committed = self._reads.telemetry(engine.run_key).last_commit_at_ns
        return None if committed is None else max(now_ns - committed, 0) / NANOSECONDS

    def label_totals(self, engine: EngineRow, family: str, window: Window) -> dict[str, float]:
        """Return a labelled counter's sum per label over a window."""
        series = self._reads.labelled(engine.run_key, family, window.start_ns, window.end_ns)
        totals = {name: float(curve.sum()) for name, curve in series.values.items()}
        return {name: total for name, total in totals.items() if total}

    def provenance(self, engine: EngineRow, window: Window, now_ns: int) -> Provenance:
        """Return what share of events the run and the window were drawn from."""
        health = self.telemetry(engine)
        series = self._reads.series(
            engine.run_key, ("events_stored", "events_lost"), window.start_ns, window.end_ns
        )
        stored = total_of(series, "events_stored") or 0
        lost = total_of(series, "events_lost") or 0
        return Provenance(
            stored=health.stored,
            lost=health.lost,
            share_ratio=health.share_ratio,
            window_share_ratio=stored / (stored + lost) if stored + lost else None,
            num_gaps=engine.num_gaps,
            last_event_at_ns=engine.last_event_at_ns,
            age_seconds=self.age_seconds(engine, now_ns),
            page=page_of(engine.fingerprint),
        )

    def strip(self, engine: EngineRow, window: Window) -> list[Tile]:
        """Return the seven tiles."""
        series = self._reads.series(engine.run_key, STRIP_METRICS, window.start_ns, window.end_ns)
        facts = StripFacts(
            engine=engine,
            window=window,
            series=series,
            rejected_by_reason=self.label_totals(engine, "rejected", window),
            ttft=self._reads.latency_summary(
                engine.run_key, "ttft", window.start_ns, window.end_ns
            ),
            requests=self._reads.requests(
                engine.run_key, window.start_ns, window.end_ns, limit=2000
            ),
        )
        return strip_of(facts, self.config)

    def pool(self, engine: EngineRow, window: Window) -> Curves:
        """Return active, cached, free and total blocks."""
        return gauges(
            self._reads.series(engine.run_key, POOL_METRICS, window.start_ns, window.end_ns)
        )

    def waits(self, engine: EngineRow, window: Window) -> Curves:
        """Return seconds waited per second, per class."""
        series = self._reads.series(engine.run_key, WAIT_METRICS, window.start_ns, window.end_ns)
        return waits_per_second(series, window.end_ns)

    def rejections(self, engine: EngineRow, window: Window) -> Curves:
        """Return refused requests per interval, per reason."""
        return amounts(
            self._reads.labelled(
                engine.run_key, "rejected", window.start_ns, window.end_ns, max_points=240
            )
        )

    def latency(self, engine: EngineRow, metric: str, window: Window) -> Curves:
        """Return a latency's quantiles over time."""
        return quantiles(
            self._reads.latencies(
                engine.run_key, metric, window.start_ns, window.end_ns, LATENCY_POINTS
            )
        )

    def sharing(self, engine: EngineRow, window: Window) -> Sharing:
        """Return what sharing saved and cost."""
        return sharing_of(engine, self._series(engine, SHARING_METRICS, window))

    def token_sources(self, engine: EngineRow, window: Window) -> Curves:
        """Return prompt tokens per second: computed, found fresh, found again."""
        return rates(self._series(engine, tuple(TOKENS), window), window.end_ns)

    def references(self, engine: EngineRow, window: Window) -> Curves:
        """Return references and active blocks."""
        return gauges(self._series(engine, ("active_blocks", "logical_blocks"), window))

    def block_moves(self, engine: EngineRow, window: Window) -> Curves:
        """Return blocks copied and swapped per second."""
        return rates(self._series(engine, tuple(MOVES), window), window.end_ns)

    def _series(self, engine: EngineRow, metrics: Sequence[str], window: Window) -> Series:
        return self._reads.series(engine.run_key, metrics, window.start_ns, window.end_ns)

    def tenants(self, engine: EngineRow, window: Window) -> list[TenantRow]:
        """Return each tenant's share of the window, the largest first."""
        return self._reads.tenants(engine.run_key, window.start_ns, window.end_ns)

    def tenant_blocks(self, engine: EngineRow, window: Window) -> Curves:
        """Return the active blocks of the largest tenants."""
        return largest(self._labelled(engine, "tenant_active_blocks", window))

    def tenant_tokens(self, engine: EngineRow, window: Window) -> Curves:
        """Return tokens of ended requests of the largest tenants, per interval."""
        return largest(self._labelled(engine, "tenant_tokens", window))

    def _labelled(self, engine: EngineRow, family: str, window: Window) -> LabelledSeries:
        return self._reads.labelled(
            engine.run_key, family, window.start_ns, window.end_ns, max_points=240
        )

    def head_of_line(self, engine: EngineRow) -> HeadOfLine | None:
        """Return who is at the head of the line now, if others wait behind it."""
        live = self.is_live(engine) and engine.waiting
        return self._reads.head_of_line(engine.run_key) if live else None

    def event_rates(self, engine: EngineRow, window: Window) -> Curves:
        """Return events stored and lost per second."""
        metrics = ("events_stored", "events_lost")
        series = self._reads.series(engine.run_key, metrics, window.start_ns, window.end_ns)
        return rates(series, window.end_ns)

    def marks(self, engine: EngineRow, window: Window) -> Marks:
        """Return what is marked on the window's time charts."""
        marks = self._reads.marks(engine.run_key, window.start_ns, window.end_ns)
        return marks_of(marks, self.gaps(engine), window)

    def block_map(self, engine: EngineRow, at_ns: int | None) -> "BlockMap | None":
        """Return the map now (None) or at a moment."""
        return self._reads.block_map(engine.run_key, at_ns)

    def leaked_at(self, engine: EngineRow, at_ns: int) -> list[Leak]:
        """Return the leaks that were open at a moment."""
        return [
            leak
            for leak in self._reads.leaks(engine.run_key)
            if leak.since_ns <= at_ns and (leak.ended_at_ns is None or leak.ended_at_ns > at_ns)
        ]

    def broken_laws(self, engine: EngineRow) -> list[BrokenLaw]:
        """Return the laws and audits that did not hold, those that do not now first."""
        return self._reads.broken_laws(engine.run_key)

    def gpus(self, window: Window) -> GpuHistory:
        """Return what the GPUs of all machines did in a window."""
        return self._reads.gpus(window.start_ns, window.end_ns)

    def open_leaks(self, engine: EngineRow) -> list[Leak]:
        """Return the leaks that are open now."""
        return [leak for leak in self._reads.leaks(engine.run_key) if leak.ended_at_ns is None]

    def requests(
        self, engine: EngineRow, window: Window, *, limit: int, order: RequestOrder
    ) -> list[RequestRow]:
        """Return the sequences alive within the window."""
        return self._reads.requests(
            engine.run_key, window.start_ns, window.end_ns, limit=limit, order=order
        )

    def request(self, engine: EngineRow, owner: int) -> RequestRow | None:
        """Return one sequence."""
        return self._reads.request(engine.run_key, owner)

    def timeline(self, engine: EngineRow, row: RequestRow) -> Timeline:
        """Return one sequence's timeline."""
        now_ns = engine.last_event_at_ns or engine.started_at_ns
        return timeline_of(self._reads.request_events(engine.run_key, row.owner), row, now_ns)

    def telemetry(self, engine: EngineRow) -> TelemetryHealth:
        """Return how much of the run's events arrived, and how fresh that is."""
        return self._reads.telemetry(engine.run_key)

    def kind_totals(self, engine: EngineRow) -> dict[str, KindTotal]:
        """Return events stored and lost per kind."""
        return self._reads.totals(engine.run_key)

    def gaps(self, engine: EngineRow) -> Sequence[GapRow]:
        """Return the stretches known to be missing."""
        return self._reads.gaps(engine.run_key)

    def is_live(self, engine: EngineRow) -> bool:
        """Return whether the engine still writes."""
        return engine.state is RunState.LIVE
