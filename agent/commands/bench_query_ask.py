"""The questions of `kvpulse bench query`, asked as a page asks them, each on a fresh connection.

An answer is checked before its time counts. What a connection has once learned (prepared
statements, Postgres's catalogue, SQLite's pages) is learned anew for each question; the operating
system and the database server keep what they hold in memory, as beside a page that is in use.
"""

import random
import time
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, TypeVar

import numpy as np

from agent.block_map import BlockMap
from agent.commands.bench_query_history import HOUR, LATENCY_TIERS, NS, History
from agent.commands.bench_query_stretches import BusyStretch
from agent.reads.models import LatencySeries, Series
from agent.reads.reads import Reads, open_reads

Answer = TypeVar("Answer")

DAY_HOURS: Final = 24
MONTH_HOURS: Final = 30 * 24
# As many as a page with the pool, the queue and the waits on it asks for at once.
METRICS: Final = (
    *("active_blocks", "cached_blocks", "free_blocks", "total_blocks", "running", "waiting"),
    *("arrived", "rejected", "preempted", "decode_tokens"),
    *("wait_pool_ns", "wait_scheduler_ns", "wait_quota_ns", "wait_transfer_ns"),
)


class WrongAnswerError(Exception):
    """The store gave back something else than what was put in."""


class Took(NamedTuple):
    """How long one answer took, in milliseconds."""

    wall_ms: float
    cpu_ms: float  # of the asking thread; Postgres's own is not in it


class Asker:
    """Asks one store, and keeps how long each answer took."""

    def __init__(self, where: str, *, seed: int) -> None:
        self._where = where
        self._random = random.Random(seed)

    def maps(self, stretch: BusyStretch, number: int) -> list[Took]:
        """Ask for the block map with its owners at so many moments of a stretch."""
        moments = [self._random.randint(stretch.start_ns, stretch.end_ns) for _ in range(number)]
        return [self._timed(_map_question(stretch.run_key, at_ns), _check_map) for at_ns in moments]

    def series(self, history: History, hours: int, number: int) -> list[Took]:
        """Ask for scalar metrics over windows of so many hours."""

        def check(found: Series) -> None:
            wanted = history.arrived_per_hour * min(hours, _hours_of(history))
            _expect("arrived", float(found.values["arrived"].sum()), wanted)

        return [
            self._timed(_series_question(history.run_key, start, hours), check)
            for start in self._starts(history, hours, number)
        ]

    def latencies(self, history: History, hours: int, number: int) -> list[Took]:
        """Ask for one latency's quantiles over windows of so many hours."""

        def check(found: LatencySeries) -> None:
            intervals = min(hours, _hours_of(history)) * HOUR // found.tier_seconds
            if found.tier_seconds not in LATENCY_TIERS:
                intervals = 0  # a history so short that a finer tier answers
            _expect("intervals with latencies", len(found.t_ns), intervals)

        return [
            self._timed(_latency_question(history.run_key, start, hours), check)
            for start in self._starts(history, hours, number)
        ]

    def _starts(self, history: History, hours: int, number: int) -> Iterable[int]:
        latest = max(0, _hours_of(history) - hours)
        return [
            history.start_ns + self._random.randint(0, latest) * HOUR * NS for _ in range(number)
        ]

    def _timed(self, question: Callable[[Reads], Answer], check: Callable[[Answer], None]) -> Took:
        reads = open_reads(self._where)
        try:
            began, cpu_began = time.perf_counter(), time.thread_time()
            answer = question(reads)
            wall, cpu = time.perf_counter() - began, time.thread_time() - cpu_began
        finally:
            reads.close()
        check(answer)
        return Took(wall * 1e3, cpu * 1e3)


def _map_question(run_key: int, at_ns: int) -> Callable[[Reads], BlockMap | None]:
    return lambda reads: reads.block_map(run_key, at_ns)


def _series_question(run_key: int, start_ns: int, hours: int) -> Callable[[Reads], Series]:
    return lambda reads: reads.series(run_key, METRICS, start_ns, start_ns + hours * HOUR * NS)


def _latency_question(run_key: int, start_ns: int, hours: int) -> Callable[[Reads], LatencySeries]:
    return lambda reads: reads.latencies(run_key, "ttft", start_ns, start_ns + hours * HOUR * NS)


def _hours_of(history: History) -> int:
    return (history.end_ns - history.start_ns) // (HOUR * NS)


def _check_map(found: BlockMap | None) -> None:
    if found is None or not found.exact:
        raise WrongAnswerError("a block map of a moment within the stored detail is not exact")
    held = np.bincount(found.ref_block, minlength=len(found.count))
    _expect("blocks whose holders and count differ", int((held != found.count).sum()), 0)


def _expect(what: str, found: float, wanted: float) -> None:
    if found != wanted:
        raise WrongAnswerError(f"{what}: {found:g}, not {wanted:g}")
