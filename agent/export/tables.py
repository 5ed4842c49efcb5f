"""What can be exported: each table's columns, and how its rows of one run come from `Reads`."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from agent.export.columns import Column, ColumnKind, columns_of, integers, texts, times
from agent.reads.models import MarkKind, RunRow, TenantRow
from agent.reads.pages import Page
from agent.reads.reads import Reads
from agent.rollups.scalars import COLUMNS, TIERS

ALL_TIME: Final = 2**62


@dataclass(frozen=True, slots=True)
class Span:
    """What of a run is asked for: `[start_ns, end_ns)` in wall time, and which rollup tiers."""

    start_ns: int = 0
    end_ns: int = ALL_TIME
    tiers: tuple[int, ...] = TIERS

    def touches(self, run: RunRow) -> bool:
        """Say whether a run was there at any moment of it."""
        last = run.last_event_at_ns or run.started_at_ns
        return run.started_at_ns < self.end_ns and last >= self.start_ns


PagesOf = Callable[[Reads, RunRow, Span], Iterable[Page]]


@dataclass(frozen=True, slots=True)
class ExportTable:
    """One file: what a row of it stands for, its columns, and where its rows come from."""

    name: str
    text: str
    columns: tuple[Column, ...]
    pages: PagesOf


def _paged(table: str, text: str) -> ExportTable:
    def pages(reads: Reads, run: RunRow, span: Span) -> Iterable[Page]:
        return reads.pages(table, run.run_key, span.start_ns, span.end_ns)

    return ExportTable(table, text, columns_of(table), pages)


def _of_tiers(table: str, text: str) -> ExportTable:
    """Return a paged table of which only some tiers may be wanted."""

    def pages(reads: Reads, run: RunRow, span: Span) -> Iterator[Page]:
        for page in reads.pages(table, run.run_key, span.start_ns, span.end_ns):
            wanted = [i for i, tier in enumerate(page["tier_seconds"]) if tier in span.tiers]
            yield {name: [values[i] for i in wanted] for name, values in page.items()}

    return ExportTable(table, text, columns_of(table), pages)


def _rollups(reads: Reads, run: RunRow, span: Span) -> Iterator[Page]:
    last = run.last_event_at_ns
    end_ns = span.end_ns if last is None else min(span.end_ns, last + 1)
    for tier in span.tiers:
        yield from reads.rollup_pages(
            run.run_key, tier, max(span.start_ns, run.started_at_ns), end_ns
        )


def _runs(_reads: Reads, run: RunRow, _span: Span) -> Iterator[Page]:
    values: dict[str, object] = {column.source: getattr(run, column.source) for column in RUNS}
    values["state"] = run.state.value
    values["fingerprint"] = json.dumps(dict(run.fingerprint))
    yield {name: [value] for name, value in values.items()}


def _tenants(reads: Reads, run: RunRow, span: Span) -> Iterator[Page]:
    rows = reads.tenants(run.run_key, span.start_ns, span.end_ns)
    yield _page(TENANTS, ({name: getattr(row, name) for name in TENANT_NAMES} for row in rows))


def _marks(reads: Reads, run: RunRow, span: Span) -> Iterator[Page]:
    marks = [
        mark
        for mark in reads.marks(run.run_key, span.start_ns, span.end_ns)
        # A chart of one run marks the engine's other starts too; here each run has its own row.
        if mark.kind is not MarkKind.RESTART or mark.t_ns == run.started_at_ns
    ]
    rows = ({"at_ns": m.t_ns, "kind": m.kind.value, "text": m.text} for m in marks)
    yield _page(MARKS, rows)


def _totals(reads: Reads, run: RunRow, _span: Span) -> Iterator[Page]:
    totals = reads.totals(run.run_key).items()
    rows = ({"kind": kind, "stored": n.stored, "lost": n.lost} for kind, n in totals)
    yield _page(TOTALS, rows)


def _page(columns: Iterable[Column], rows: Iterable[Mapping[str, Any]]) -> Page:
    listed = list(rows)
    return {column.source: [row[column.source] for row in listed] for column in columns}


RUNS: Final = (
    *times("started_at_ns", "ended_at_ns", "last_event_at_ns"),
    *texts("state", "fingerprint"),
    *integers("total_blocks", "host_blocks", "block_size", "num_gaps", "events_stored"),
    *integers("events_lost", "audits_passed", "audits_failed"),
)
TENANT_NAMES: Final = tuple(TenantRow.__slots__)
TENANTS: Final = tuple(
    Column(
        name,
        {"tenant": ColumnKind.TEXT, "block_seconds": ColumnKind.NUMBER}.get(
            name, ColumnKind.INTEGER
        ),
    )
    for name in TENANT_NAMES
)
MARKS: Final = (*times("at_ns"), *texts("kind", "text"))
TOTALS: Final = (*texts("kind"), *integers("stored", "lost"))

_ALL: Final = (
    ExportTable("runs", "one run of an engine, with its totals", RUNS, _runs),
    _paged("requests", "one sequence: blocks, waits, preemptions, end"),
    ExportTable(
        "rollups",
        "one interval of one tier; counters are sums over it, gauges its last value",
        (*integers("tier_seconds"), *times("at_ns"), *integers(*COLUMNS)),
        _rollups,
    ),
    _of_tiers("latencies", "one latency's count, sum and quantiles over one interval"),
    _of_tiers("labelled", "one label's value in one interval; absent where it did not move"),
    ExportTable("tenants", "one tenant's sequences alive in the window", TENANTS, _tenants),
    ExportTable("marks", "what happened to a run, as on every time chart", MARKS, _marks),
    _paged("gaps", "one stretch of events known to be missing"),
    _paged("leaks", "one block that outlived its owner"),
    _paged("broken_laws", "one law or audit that did not hold, from when to when"),
    ExportTable("totals", "one kind of event: stored and lost", TOTALS, _totals),
)
TABLES: Final[Mapping[str, ExportTable]] = MappingProxyType({table.name: table for table in _ALL})
