"""The tables of an incident's bundle, as CSV: rows of its engine's runs around its time."""

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from agent.reads.models import RunRow
from agent.reads.pages import Page
from agent.reads.reads import Reads
from agent.rollups.scalars import TIERS

NS: Final = 1_000_000_000
MOST_INTERVALS: Final = 8_000  # of a tier; a longer time is told by a coarser one
FORMULA_SIGNS: Final = ("=", "+", "-", "@")
MOST_ROWS: Final = 200_000  # of a table
ABOUT: Final = {
    "requests": "sequences alive in the window: lengths, waits, blocks, ends, a keyed hash",
    "rollups": "counters and gauges by interval",
    "latencies": "quantiles of each latency by interval",
    "labelled": "counters by label and interval",
    "gaps": "stretches that are known to be missing",
    "leaks": "blocks that outlived their owner",
    "broken_laws": "laws of the ledger that did not hold",
}


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of wall time and the tier that its rollups are told in."""

    start_ns: int
    end_ns: int

    @property
    def tier_seconds(self) -> int:
        """Return the finest tier with a bounded number of intervals."""
        seconds = (self.end_ns - self.start_ns) / NS
        fitting = (tier for tier in TIERS if seconds / tier <= MOST_INTERVALS)
        return next(fitting, TIERS[-1])


@dataclass(frozen=True, slots=True)
class TableText:
    """A table as CSV, and whether all of it is there."""

    text: str
    num_rows: int
    is_whole: bool


def table_text(reads: Reads, table: str, runs: list[RunRow], window: Window) -> TableText:
    """Return the rows of one of `ABOUT`; NULL is an empty field."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    num_rows, has_head = 0, False
    for run in runs:
        for page in _pages(reads, table, run, window):
            if not has_head:
                writer.writerow(["run_id", *page])
                has_head = True
            for values in _rows(page, window):
                if num_rows == MOST_ROWS:
                    return TableText(out.getvalue(), num_rows, is_whole=False)
                writer.writerow([run.run_id, *values])
                num_rows += 1
    return TableText(out.getvalue(), num_rows, is_whole=True)


def _pages(reads: Reads, table: str, run: RunRow, window: Window) -> Iterator[Page]:
    if table == "rollups":
        return reads.rollup_pages(run.run_key, window.tier_seconds, window.start_ns, window.end_ns)
    return reads.pages(table, run.run_key, window.start_ns, window.end_ns)


def _rows(page: Page, window: Window) -> Iterator[tuple[object, ...]]:
    """Return a page's rows; of tables that are kept in every tier only the window's."""
    tiers = page.get("tier_seconds")
    for number, values in enumerate(zip(*page.values(), strict=True)):
        if tiers is None or tiers[number] == window.tier_seconds:
            yield tuple(map(_field, values))


def _field(value: object) -> object:
    if isinstance(value, dict | list):
        return json.dumps(value)
    # A table program would run a text that looks like a formula; names come from anybody.
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA_SIGNS) else value
