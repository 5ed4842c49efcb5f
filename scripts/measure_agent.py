"""Measure a real agent beside a paced engine: CPU, memory, and how soon a record can be queried.

    python scripts/measure_agent.py --seconds 60 --requests-per-second 20 --json

One process records the simulated engine (8 tenants), engine time held to the wall clock. A second
one is `python -m kvpulse agent` with its own settings on a fresh SQLite store. This one looks at
both from outside: `/proc` for the agent's CPU (user and system) and resident memory, and 50 times a
second the newest record in the journal against the position stored. The first seconds, in which
both start, are left out. "Queryable" means stored with its chunk and its 1 s rollups.
"""

import argparse
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from kvpulse.reader import StreamReader, list_streams

WARM_UP_SECONDS: Final = 8.0
LOOK_SECONDS: Final = 0.02
TICKS: Final = os.sysconf("SC_CLK_TCK")
SETTLE_SECONDS: Final = 3.0


@dataclass(frozen=True, slots=True)
class Figures:
    """What is printed; CPU is of one core, user and system, of the agent alone."""

    seconds: float
    events_per_second: float
    cpu_percent: float
    user_percent: float
    rss_start_mb: float
    rss_end_mb: float
    queryable_p50_ms: float
    queryable_p99_ms: float
    cpu_ms_per_commit: float
    commits_per_second: float


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="measured, after a warm-up")
    parser.add_argument(
        "--requests-per-second", type=float, default=20.0, help="about 20 k events/s"
    )
    parser.add_argument("--profile", type=Path, help="run the agent under cProfile into this file")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--write-to", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.write_to is not None:
        write(options.write_to, options.requests_per_second, options.seconds)
        return 0
    figures = asdict(measure(options))
    if options.json:
        print(json.dumps(figures))
    else:
        print("\n".join(f"{name:20} {value}" for name, value in figures.items()))
    return 0


def write(journal: Path, requests_per_second: float, seconds: float) -> None:
    """Record the paced engine; runs in a process of its own."""
    from engine.simulation.cost_model import CostModel
    from engine.simulation.trace_recording import TraceRun, record_trace
    from engine.simulation.workload import WorkloadShape, make_workload

    number = int(requests_per_second * seconds * 1.5) + 20
    shape = WorkloadShape(num_requests=number, requests_per_second=requests_per_second)
    requests = make_workload(shape, block_size=16)
    cost = CostModel(base_ns=4_000_000, prefill_token_ns=1_000)  # fast enough for 20 k events/s
    run = TraceRun(cost=cost, speed=1.0, seconds=seconds, wall_start_ns=time.time_ns())
    recorded = record_trace(requests, journal=journal, run=run)
    assert recorded.not_written == 0


def measure(options: argparse.Namespace) -> Figures:
    """Start both, look at them for as long as was asked for, and stop them."""
    with (
        tempfile.TemporaryDirectory(prefix="kvpulse-agent-", dir="/dev/shm") as memory,
        tempfile.TemporaryDirectory(prefix="kvpulse-agent-") as disk,
    ):
        journal, store = Path(memory) / "journal", Path(disk) / "kvpulse.db"
        lasting = options.seconds + WARM_UP_SECONDS + SETTLE_SECONDS
        rate = str(options.requests_per_second)
        writer = [sys.executable, __file__, "--write-to", str(journal)]
        writer += ["--requests-per-second", rate, "--seconds", str(lasting)]
        flags = ["agent", "--journal", str(journal), "--store", str(store), "--port", "0"]
        profiled = ["-m", "cProfile", "-o", str(options.profile)] if options.profile else []
        agent = [sys.executable, *profiled, "-m", "kvpulse", *flags]
        with running(agent) as agent_pid, running(writer):
            wait_for(store)
            time.sleep(WARM_UP_SECONDS)
            return look(agent_pid, list_streams(journal)[0], store, options.seconds)


def look(pid: int, stream: Path, store: Path, seconds: float) -> Figures:
    """Watch for `seconds`."""
    written: list[tuple[float, int]] = []
    stored: list[tuple[float, int]] = []
    with (
        closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as database,
        StreamReader(stream) as reader,
    ):
        rss_start, began = rss_mb(pid), time.monotonic()
        cpu, events, commits = cpu_seconds(pid), num_events(database), 0
        while time.monotonic() - began < seconds:
            written.append((time.monotonic(), reader.status().newest_seq))
            seq = database.execute("SELECT seq FROM positions").fetchone()[0]
            commits += bool(stored) and stored[-1][1] != seq
            stored.append((time.monotonic(), seq))
            time.sleep(LOOK_SECONDS)
        passed = time.monotonic() - began
        user, system = (after - before for after, before in zip(cpu_seconds(pid), cpu, strict=True))
        events = num_events(database) - events
    delays = sorted(delays_ms(written, stored))
    return Figures(
        seconds=round(passed, 1),
        events_per_second=round(events / passed),
        cpu_percent=round(100 * (user + system) / passed, 2),
        user_percent=round(100 * user / passed, 2),
        rss_start_mb=round(rss_start, 1),
        rss_end_mb=round(rss_mb(pid), 1),
        queryable_p50_ms=round(delays[len(delays) // 2], 1),
        queryable_p99_ms=round(delays[int(len(delays) * 0.99)], 1),
        cpu_ms_per_commit=round(1e3 * (user + system) / max(commits, 1), 2),
        commits_per_second=round(commits / passed, 2),
    )


def delays_ms(written: list[tuple[float, int]], stored: list[tuple[float, int]]) -> Iterator[float]:
    """Give for each look how long its newest record took to be stored."""
    positions = [seq for _, seq in stored]
    for at, newest in written:
        found = bisect_left(positions, newest)
        if found < len(stored):
            yield 1e3 * (stored[found][0] - at)


def num_events(database: sqlite3.Connection) -> int:
    """Return how many events the store holds."""
    return int(database.execute("SELECT events_stored FROM runs").fetchone()[0])


def cpu_seconds(pid: int) -> tuple[float, float]:
    """Return user and system CPU of a process, from /proc."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) / TICKS, int(fields[12]) / TICKS


def rss_mb(pid: int) -> float:
    """Return a process's resident memory in MB."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def wait_for(store: Path) -> None:
    """Wait until the agent has stored its first events."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as database:
                if database.execute("SELECT COUNT(*) FROM runs").fetchone()[0]:
                    return
        except sqlite3.Error:
            pass  # not there yet
        time.sleep(0.1)
    raise SystemExit("the agent stored nothing within a minute")


@contextmanager
def running(command: list[str]) -> Iterator[int]:
    """Run a process for as long as the block lasts; ended with SIGTERM."""
    root = Path(__file__).resolve().parents[1]
    environment = os.environ | {"PYTHONPATH": str(root)}
    process = subprocess.Popen(command, cwd=root, env=environment, stderr=subprocess.DEVNULL)
    try:
        yield process.pid
    finally:
        process.terminate()
        process.wait(30)


if __name__ == "__main__":
    raise SystemExit(main())
