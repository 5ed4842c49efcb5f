"""Numbers out of a page's samples: sums, counts, histograms; None where one makes no sense."""

from collections.abc import Iterable
from typing import Final

from agent.scraped.exposition import Sample, Samples
from agent.scraped.reading import Buckets

LARGEST: Final = float(1 << 52)  # beyond it a page's number is no count


def total_of(samples: Samples, name: str) -> float | None:
    """Return the sum over a metric's labels; None where it is not on the page."""
    rows = samples.get(name)
    return sum(each.value for each in rows) if rows else None


def count_of(value: float | None) -> int | None:
    """Return a number as a count; None where it can be none."""
    return int(value) if value is not None and 0 <= value < LARGEST else None


def by_label_of(rows: Iterable[Sample], key: str) -> dict[str, float]:
    """Return the sums by one label."""
    sums: dict[str, float] = {}
    for each in rows:
        name = each.labels.get(key, "")
        if name and 0 <= each.value < LARGEST:
            sums[name] = sums.get(name, 0.0) + each.value
    return sums


def buckets_of(samples: Samples, metric: str) -> Buckets | None:
    """Return a histogram, summed over its labels; None where it is missing or makes no sense."""
    by_bound: dict[float, float] = {}
    for each in samples.get(f"{metric}_bucket", ()):
        try:
            bound = float(each.labels.get("le", ""))
        except ValueError:
            return None
        by_bound[bound] = by_bound.get(bound, 0.0) + each.value
    bounds = sorted(by_bound)
    counts = [by_bound[bound] for bound in bounds]
    total = total_of(samples, f"{metric}_sum")
    is_whole = bool(bounds) and bounds[-1] == float("inf") and all(b > 0 for b in bounds)
    if not is_whole or counts != sorted(counts) or total is None:
        return None
    if not (0 <= total < LARGEST and counts[0] >= 0 and counts[-1] < LARGEST):
        return None
    return Buckets(tuple(bounds[:-1]), tuple(counts), total)


def mean_of(samples: Samples, metric: str) -> float | None:
    """Return a histogram's mean; None without samples."""
    number, total = total_of(samples, f"{metric}_count"), total_of(samples, f"{metric}_sum")
    return total / number if number and total is not None else None
