"""Look at an agent from outside: what it costs, and how soon what an engine writes is stored."""

import os
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from agent.reads.models import TelemetryHealth
from agent.reads.reads import Reads
from kvpulse.reader import StreamReader

TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


def cpu_seconds(pid: int) -> float:
    """Return a process's CPU time, user and system, from /proc."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND


def resident_mb(pid: int) -> float:
    """Return a process's resident memory in millions of bytes, from /proc."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES / 1e6


@dataclass(slots=True)
class Delays:
    """How long what was new at a look took to be stored."""

    milliseconds: list[float] = field(default_factory=list)
    _pending: deque[tuple[float, int]] = field(default_factory=deque)
    _newest: int = 0

    def look(self, now: float, *, written: int, stored: int) -> None:
        """Note how many records are written and how many stored; `now` in seconds."""
        if written > self._newest:
            self._newest = written
            self._pending.append((now, written))
        while self._pending and self._pending[0][1] <= stored:
            since, _ = self._pending.popleft()
            self.milliseconds.append(1e3 * (now - since))

    def quantile(self, ratio: float) -> float | None:
        """Return a quantile in ms; None where nothing new was stored."""
        ordered = sorted(self.milliseconds)
        return round(ordered[int(len(ordered) * ratio)], 1) if ordered else None


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen of an agent over a stretch of time. CPU is of one core."""

    seconds: float
    num_events: int  # stored meanwhile
    commits: int
    cpu_percent: float
    rss_start_mb: float
    rss_end_mb: float
    rss_peak_mb: float
    queryable_p50_ms: float | None
    queryable_p99_ms: float | None


class Watch:
    """Looks at one agent that follows one engine."""

    def __init__(self, pid: int, stream: StreamReader, reads: Reads, run_key: int) -> None:
        self._pid = pid
        self._stream = stream
        self._reads = reads
        self._run_key = run_key
        self._began = time.monotonic()
        self._cpu_before = cpu_seconds(pid)
        before = reads.telemetry(run_key)
        self._events_before, self._stored = before.stored, _records(before)
        self._commits = 0
        self._rss_start_mb = self._rss_peak_mb = resident_mb(pid)
        self._delays = Delays()

    def look(self) -> float:
        """Look once; return the seconds since the beginning."""
        written = self._stream.status().newest_seq
        stored = _records(self._reads.telemetry(self._run_key))
        now = time.monotonic()
        self._delays.look(now, written=written, stored=stored)
        self._commits += stored != self._stored
        self._stored = stored
        self._rss_peak_mb = max(self._rss_peak_mb, resident_mb(self._pid))
        return now - self._began

    def seen(self) -> Seen:
        """Return what was seen since the beginning."""
        seconds = time.monotonic() - self._began
        return Seen(
            seconds=seconds,
            num_events=self._reads.telemetry(self._run_key).stored - self._events_before,
            commits=self._commits,
            cpu_percent=100 * (cpu_seconds(self._pid) - self._cpu_before) / seconds,
            rss_start_mb=self._rss_start_mb,
            rss_end_mb=resident_mb(self._pid),
            rss_peak_mb=self._rss_peak_mb,
            queryable_p50_ms=self._delays.quantile(0.5),
            queryable_p99_ms=self._delays.quantile(0.99),
        )


def _records(health: TelemetryHealth) -> int:
    """Return how many of a stream's first records are stored, or known to be lost."""
    return health.position.seq if health.position else 0
