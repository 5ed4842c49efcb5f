"""Read the facts of a scraped engine out of the store; decides nothing."""

from typing import Final

import numpy as np

from agent.reads.models import LatencySummary, RunRow, Series
from agent.reads.reads import Reads
from agent.rollups.scalars import LATENCIES
from agent.scraped.fingerprint import before_of, scrape_seconds, stated_of
from agent.scraped.look import DEFERRED, WAITS
from agent.scraped.window import COUNTED, Floats, ScrapedWindow
from agent.triage.facts import Facts, RunFacts, TelemetryFacts
from agent.triage.past import GatheredPast, Stretch
from agent.triage.scraped import Scraped, scraped_facts
from agent.triage.scraped_past import slow_ratio

NS: Final = 1_000_000_000
ALL_POINTS: Final = 10_000  # so that the tier of one second is read
COLUMNS: Final = ("running", "waiting", "active_blocks", "total_blocks", *COUNTED)
LOOKS_BEFORE: Final = 3  # how far back the look may lie that a window begins with


def gather_scraped(
    reads: Reads, run: RunRow, window: Stretch, past: GatheredPast, telemetry: TelemetryFacts
) -> Facts | None:
    """Return the facts; None where no look of the window is stored."""
    looks = read_window(reads, run, window)
    if looks is None:
        return None
    return scraped_facts(
        Scraped(
            window=looks,
            run=RunFacts(
                *(run.engine, run.run_id, run.run_key, run.state, run.started_at_ns),
                run.last_event_at_ns,
            ),
            telemetry=telemetry,
            past=past.facts,
            no_past=past.why_missing,
            slow_ratio=_slow_ratio(looks, past),
        )
    )


def read_window(reads: Reads, run: RunRow, window: Stretch) -> ScrapedWindow | None:
    """Return the looks of a window, and the one before it that its first increase counts from."""
    reach_ns = int(LOOKS_BEFORE * scrape_seconds(run.fingerprint) * NS)
    rows = reads.series(
        run.run_key, COLUMNS, window.start_ns - reach_ns, window.end_ns + 1, ALL_POINTS
    )
    if not len(rows.t_ns):
        return None
    first = max(0, int(np.searchsorted(rows.t_ns, window.start_ns, "right")) - 1)
    looks = {name: values[first:] for name, values in rows.values.items()}
    counted = {name: looks[name].copy() for name in COUNTED}
    for values in counted.values():
        values[0] = np.nan  # of the time before the window
    total = looks["total_blocks"]
    told = total[~np.isnan(total)]
    return ScrapedWindow(
        t_ns=rows.t_ns[first:],
        running=looks["running"],
        waiting=looks["waiting"],
        deferred=_deferred(reads, run, rows)[first:],
        usage=looks["active_blocks"] / np.maximum(total, 1),
        active=looks["active_blocks"],
        counted=counted,
        stated=stated_of(run),
        total_blocks=int(told[-1]) if len(told) else None,
        latencies=_latencies(reads, run, Stretch(int(rows.t_ns[first]) + NS, window.end_ns + 1)),
        since_start=before_of(run),
    )


def _deferred(reads: Reads, run: RunRow, rows: Series) -> Floats:
    """Return who waited for something else than capacity at each look."""
    waits = reads.labelled(
        run.run_key, WAITS, int(rows.t_ns[0]), int(rows.t_ns[-1]) + NS, ALL_POINTS
    )
    deferred = waits.values.get(DEFERRED)
    if deferred is None:
        return np.zeros(len(rows.t_ns))
    lengths = np.diff(rows.t_ns, prepend=rows.t_ns[0] - NS)
    of_row = dict(zip(waits.t_ns.tolist(), deferred.tolist(), strict=True))
    summed = np.array([of_row.get(t_ns, 0.0) for t_ns in rows.t_ns.tolist()])
    return np.asarray(np.round(summed / lengths))


def _latencies(reads: Reads, run: RunRow, window: Stretch) -> dict[str, LatencySummary]:
    if window.end_ns <= window.start_ns:
        return {}
    found = {name: reads.latency_summary(run.run_key, name, *window) for name in LATENCIES}
    return {name: summary for name, summary in found.items() if summary is not None}


def _slow_ratio(looks: ScrapedWindow, past: GatheredPast) -> float | None:
    tokens = looks.latencies.get("inter_token")
    if tokens is None or np.isnan(looks.running).all() or np.isnan(looks.active).all():
        return None
    return slow_ratio(
        past.minutes,
        running=float(np.nanmean(looks.running)),
        active_blocks=float(np.nanmean(looks.active)),
        seconds=tokens.sum / tokens.count,
    )
