"""One look at a scraped engine, as what it adds to the rollups; pure."""

from agent.ledger.intervals import SECOND_NS
from agent.rollups.histogram import Histogram
from agent.scraped.bucketed import histogram_of
from agent.scraped.moves import Moves
from agent.scraped.pool import held_blocks
from agent.scraped.reading import Reading
from agent.scraped.rows import Interval, Label, with_ranges

WAITS = "wait_ns"
CAPACITY, DEFERRED = "capacity", "deferred"  # as vLLM has it: it tells no more than these two


def look_of(reading: Reading, increases: Moves | None, total_blocks: int | None) -> Interval:
    """Return a look's part of every interval around it.

    Args:
        increases: Since the look before; None where there is none, or too long ago.
        total_blocks: That can hold a sequence's tokens.
    """
    gauges = {
        "active_blocks": held_blocks(reading.usage_ratio, total_blocks),
        "total_blocks": total_blocks,
        "running": reading.running,
        "waiting": reading.waiting,
        "live_sequences": _live(reading),
    }
    told = {name: value for name, value in gauges.items() if value is not None}
    if increases is None:
        return Interval(reading.t_ns, with_ranges(told))
    histograms: dict[str, Histogram] = {}
    for name, buckets in increases.histograms.items():
        histogram = histogram_of(buckets)
        if histogram.count:
            histograms[name] = histogram
    return Interval(
        reading.t_ns,
        {**with_ranges(told), **increases.counters},
        histograms,
        {**_labelled(increases), **_waits(reading, increases.seconds)},
    )


def _live(reading: Reading) -> int | None:
    if reading.running is None or reading.waiting is None:
        return None
    return reading.running + reading.waiting


def _labelled(increases: Moves) -> dict[Label, int]:
    return {
        (family, label): value
        for family, by_label in increases.labelled.items()
        for label, value in by_label.items()
        if value
    }


def _waits(reading: Reading, seconds: float) -> dict[Label, int]:
    """Return waiting since the look before: whoever waits now stands for that time."""
    if reading.waiting is None:
        return {}
    deferred = min(reading.deferred or 0, reading.waiting)
    waiting = {CAPACITY: reading.waiting - deferred, DEFERRED: deferred}
    return {
        (WAITS, cause): int(number * seconds * SECOND_NS)
        for cause, number in waiting.items()
        if number
    }
