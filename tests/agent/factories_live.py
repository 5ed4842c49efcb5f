"""A live engine as the agent's loop publishes it; tests state only what matters to them."""

from collections.abc import Mapping

from agent.ledger.delta import LiveState, RunShape, WaitNow
from agent.live_view import LiveEngine, LiveView
from agent.reads.models import RunState
from agent.rollups.histogram import Histogram
from agent.rollups.scalars import COUNTERS, GAUGES, LABELLED, LATENCIES
from kvpulse.events import Kind, WaitCause

SECOND = 1_000_000_000
NOW_NS = 1_800_000_000 * SECOND  # wall clock of all tests here
NO_EVENTS = (0,) * 64


def live_state(
    *,
    gauges: Mapping[str, int | None] | None = None,
    counters: Mapping[str, int] | None = None,
    **fields: object,
) -> LiveState:
    """Return the state of a run in which nothing has happened, changed as told."""
    values: dict[str, object] = {
        "t_ns": 100 * SECOND,
        "wall_offset_ns": NOW_NS - 100 * SECOND,
        "shape": RunShape(total_blocks=64, host_blocks=0, block_size=16),
        "gauges": {**dict.fromkeys(GAUGES), **(gauges or {})},
        "counters": {**dict.fromkeys(COUNTERS, 0), **(counters or {})},
        "labelled": {family.name: {} for family in LABELLED},
        "histograms": {name: Histogram() for name in LATENCIES},
        "waits": {cause.name.lower(): WaitNow(0, None) for cause in WaitCause},
        "stored": NO_EVENTS,
        "lost": NO_EVENTS,
        "unknown": 0,
        "audits_passed": 0,
        "audits_failed": 0,
        "laws_failed": 0,
        "last_failures": (),
        "balanced": True,
        "leaks": (),
        "held": (),
        "refused_frees": 0,
        "host_active_blocks": None,
        "last_step": None,
        "last_step_ns": None,
        "num_gaps": 0,
        "largest_free_run": None,
        "config": None,
        "tenants": {},
    }
    return LiveState(**{**values, **fields})


def live_engine(live: LiveState | None = None, **fields: object) -> LiveEngine:
    """Return an engine whose last commit was a tenth of a second before NOW_NS."""
    values: dict[str, object] = {
        "engine": "engine-0",
        "run_id": "run-1",
        "run_key": 1,
        "started_at_ns": NOW_NS - 100 * SECOND,
        "state": RunState.LIVE,
        "fingerprint": {"model": "smollm2", "kv_format": "fp32", "block_size": 16},
        "live": live or live_state(),
        "last_commit_at_ns": NOW_NS - SECOND // 10,
        "last_event_at_ns": NOW_NS - SECOND // 5,
        "lag_seconds": 0.1,
        "behind_records": 0,
    }
    return LiveEngine(**{**values, **fields})


def view_of(*engines: LiveEngine) -> LiveView:
    """Return a view in which the loop has just gone round and published the engines."""
    view = LiveView(NOW_NS - 200 * SECOND, store_label="kvpulse.db", journal="/dev/shm/kvpulse-0")
    for engine in engines:
        view.publish(engine)
    view.note_loop(NOW_NS)
    return view


def per_kind(counts: Mapping[Kind, int]) -> tuple[int, ...]:
    """Return the 64 places of a count per kind."""
    return tuple(counts.get(index, 0) for index in range(64))
