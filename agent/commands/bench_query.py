"""`kvpulse bench query`: how long a page waits for block maps, a day and a month of history.

A month of one engine's rollups is written as an agent writes them; minutes of two busy engines are
recorded by the simulated engine and stored by the agent's own loop. Then questions are asked of
random moments, each on a fresh connection. Times are medians, or p95 where the name says so.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from subprocess import CalledProcessError
from typing import Final

import numpy as np

from agent.commands.bench_ingest_postgres import SUFFIX, require_empty_database
from agent.commands.bench_query_ask import DAY_HOURS, MONTH_HOURS, Asker, Took, WrongAnswerError
from agent.commands.bench_query_history import write_history
from agent.commands.bench_query_stretches import LOADS, record_load, store_stretch
from agent.commands.exit_codes import ExitCode
from agent.reads.reads import open_reads
from agent.store.store import Store

SEED: Final = 20_261_130
DAYS: Final = 30.0
BUSY_SECONDS: Final = 120.0
MOMENTS: Final = 60


@dataclass(frozen=True, slots=True)
class QueryFigures:
    """What one store's answers took, in milliseconds."""

    block_map_p95_ms: float  # the slower of the two loads
    block_map_cpu_p95_ms: float  # of that, the asking thread's CPU time
    block_map_2k_p95_ms: float
    block_map_20k_p95_ms: float
    block_map_2k_events_per_second: int  # as recorded
    block_map_20k_events_per_second: int
    day_at_1m_ms: float
    day_at_1m_p95_ms: float
    day_latency_at_1m_ms: float
    day_at_1m_cpu_ms: float
    month_at_1h_ms: float
    month_at_1h_p95_ms: float
    month_at_1h_cpu_ms: float
    rollup_rows: int
    store_bytes: int


def main(argv: Sequence[str]) -> int:
    """Run `kvpulse bench query`."""
    arguments = _parser().parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="kvpulse-bench-", dir=arguments.folder) as folder:
        stores = {"": str(Path(folder) / "bench.db")}
        if arguments.postgres:
            require_empty_database(arguments.postgres)
            stores[SUFFIX] = arguments.postgres
        try:
            journals = [
                record_load(load, Path(folder), seconds=arguments.busy_seconds, seed=arguments.seed)
                for load in LOADS
            ]
            figures = {
                suffix: measure(where, journals, arguments) for suffix, where in stores.items()
            }
        except CalledProcessError as error:
            print(f"kvpulse replay ended with {error.returncode}", file=sys.stderr)
            return ExitCode.UNREACHABLE
        except WrongAnswerError as error:
            print(f"wrong answer: {error}", file=sys.stderr)
            return ExitCode.BAD_ANSWER
    facts: dict[str, object] = {"days": arguments.days, "seed": arguments.seed}
    for suffix, found in figures.items():
        facts |= {name + suffix: value for name, value in asdict(found).items()}
    words = "\n".join(_in_words(suffix, found) for suffix, found in figures.items())
    print(json.dumps(facts) if arguments.json else words)
    return ExitCode.GOOD


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="kvpulse bench query", description=__doc__)
    parser.add_argument("--days", type=float, default=DAYS, help="of history; default %(default)g")
    parser.add_argument(
        "--busy-seconds",
        type=float,
        default=BUSY_SECONDS,
        help="of engine time for block maps, at each load; default %(default)g",
    )
    parser.add_argument(
        "--moments", type=int, default=MOMENTS, help="asked for each question; default %(default)d"
    )
    parser.add_argument("--seed", type=int, default=SEED, help="default %(default)d")
    parser.add_argument("--folder", type=Path, help="for the SQLite store; some GB for 30 days")
    parser.add_argument(
        "--postgres", metavar="URL", help="ask this empty database as well; what is stored stays"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def measure(where: str, journals: Sequence[Path], arguments: argparse.Namespace) -> QueryFigures:
    """Fill one store and ask it.

    Raises:
        WrongAnswerError: It gave back something else than what was stored.
    """
    with Store.open(where) as store:
        hours = max(1, round(arguments.days * DAY_HOURS))
        history = write_history(store, hours=hours, seed=arguments.seed)
    stretches = [
        store_stretch(load, journal, where) for load, journal in zip(LOADS, journals, strict=True)
    ]
    print("asking …", file=sys.stderr)
    asker, number = Asker(where, seed=arguments.seed), arguments.moments
    maps = [asker.maps(stretch, number) for stretch in stretches]
    events_per_second = [round(stretch.events_per_second) for stretch in stretches]
    day = asker.series(history, DAY_HOURS, number)
    day_latency = asker.latencies(history, DAY_HOURS, number)
    month = asker.series(history, MONTH_HOURS, number)
    return QueryFigures(
        block_map_p95_ms=max(_p95(_wall(took)) for took in maps),
        block_map_cpu_p95_ms=max(_p95(_cpu(took)) for took in maps),
        block_map_2k_p95_ms=_p95(_wall(maps[0])),
        block_map_20k_p95_ms=_p95(_wall(maps[1])),
        block_map_2k_events_per_second=events_per_second[0],
        block_map_20k_events_per_second=events_per_second[1],
        day_at_1m_ms=_median(_wall(day)),
        day_at_1m_p95_ms=_p95(_wall(day)),
        day_at_1m_cpu_ms=_median(_cpu(day)),
        day_latency_at_1m_ms=_median(_wall(day_latency)),
        month_at_1h_ms=_median(_wall(month)),
        month_at_1h_p95_ms=_p95(_wall(month)),
        month_at_1h_cpu_ms=_median(_cpu(month)),
        rollup_rows=history.num_rows,
        store_bytes=_store_bytes(where, history.run_key),
    )


def _wall(took: Sequence[Took]) -> list[float]:
    return [each.wall_ms for each in took]


def _cpu(took: Sequence[Took]) -> list[float]:
    return [each.cpu_ms for each in took]


def _median(milliseconds: Sequence[float]) -> float:
    return round(float(np.median(milliseconds)), 2)


def _p95(milliseconds: Sequence[float]) -> float:
    return round(float(np.percentile(milliseconds, 95)), 2)


def _store_bytes(where: str, run_key: int) -> int:
    reads = open_reads(where)
    try:
        return reads.telemetry(run_key).store_bytes
    finally:
        reads.close()


def _in_words(suffix: str, found: QueryFigures) -> str:
    return "\n".join(
        (
            f"{'Postgres' if suffix else 'SQLite'}, {found.rollup_rows:,} rows of rollups,"
            f" {found.store_bytes / 1e6:,.0f} MB:",
            f"  block map with owners, p95: {found.block_map_2k_p95_ms} ms at"
            f" {found.block_map_2k_events_per_second:,} events a second,"
            f" {found.block_map_20k_p95_ms} ms at {found.block_map_20k_events_per_second:,}",
            f"  a day at 1 min: {found.day_at_1m_ms} ms, p95 {found.day_at_1m_p95_ms};"
            f" one latency {found.day_latency_at_1m_ms} ms",
            f"  a month at 1 h: {found.month_at_1h_ms} ms, p95 {found.month_at_1h_p95_ms}",
        )
    )
