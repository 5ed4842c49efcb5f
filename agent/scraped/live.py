"""What the agent shows of a scraped engine between looks: the newest numbers, no owners, no map."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.ledger.delta import LiveState, RunShape
from agent.rollups.histogram import Histogram
from agent.rollups.scalars import GAUGES, LATENCIES
from agent.scraped.bucketed import histogram_of
from agent.scraped.moves import per_bucket
from agent.scraped.pool import held_blocks
from agent.scraped.reading import Reading
from kvpulse.events import MAX_KINDS

NOTHING = (0,) * MAX_KINDS


@dataclass(frozen=True, slots=True)
class Shown:
    """What a look is shown with."""

    shape: RunShape
    num_gaps: int = 0
    config: Mapping[str, object] = field(default_factory=dict)


def live_of(reading: Reading, shown: Shown) -> LiveState:
    """Return a look as live state; totals are the page's own, since the engine's start."""
    total = shown.shape.total_blocks or None
    gauges: dict[str, int | None] = dict.fromkeys(GAUGES)
    gauges["active_blocks"] = held_blocks(reading.usage_ratio, total)
    gauges["total_blocks"] = total
    gauges["running"], gauges["waiting"] = reading.running, reading.waiting
    histograms = {name: Histogram() for name in LATENCIES}
    for name, buckets in reading.histograms.items():
        histograms[name] = histogram_of(per_bucket(buckets))
    return LiveState(
        t_ns=reading.t_ns,
        wall_offset_ns=0,
        shape=shown.shape,
        gauges=gauges,
        counters={name: int(value) for name, value in reading.counters.items()},
        labelled={
            family: {label: int(value) for label, value in by_label.items()}
            for family, by_label in reading.labelled.items()
        },
        histograms=histograms,
        waits={},
        stored=NOTHING,
        lost=NOTHING,
        unknown=0,
        audits_passed=0,
        audits_failed=0,
        laws_failed=0,
        last_failures=(),
        balanced=None,
        leaks=(),
        held=(),
        refused_frees=0,
        host_active_blocks=None,
        last_step=None,
        last_step_ns=None,
        num_gaps=shown.num_gaps,
        largest_free_run=None,
        config=shown.config,
        tenants={},
    )
