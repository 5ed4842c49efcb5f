"""`kvpulse bench soak`: what a live agent costs beside a busy engine, and that it loses nothing.

One process records the simulated engine, held to the wall clock, its journal bounded as an engine's
is. A second one is `kvpulse agent` with its own settings on a fresh SQLite store. This one looks at
both from outside: at the agent's CPU time and memory in /proc, and 50 times a second at the newest
record in the journal and the newest one stored. "Queryable" means stored with its chunk and its 1 s
rollups. The warm-up, in which both start and caches fill, is left out. At the end, every event that
the engine emitted must be in the store.
"""

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from agent.commands.bench_folder import fast_folder
from agent.commands.exit_codes import ExitCode
from agent.commands.soak_processes import POLL_SECONDS, Part, exit_on, running
from agent.commands.soak_watch import Seen, Watch
from agent.errors import StoreError
from agent.reads.models import EngineRow, RunState
from agent.reads.reads import open_reads
from kvpulse.reader import StreamReader, list_streams

EVENTS_PER_REQUEST: Final = 1_000  # about; what came of it is measured
ENGINE: Final = ("--step-ms", "4", "--prefill-us", "1", "--speed", "1", "--max-journal-mib", "256")
ENGINE_CODES: Final = (0, 1)  # 1: it found no segment for some events; it counts them
LOOK_SECONDS: Final = 0.02
PROGRESS_SECONDS: Final = 10.0
# So long the engine goes on when all have started at once; on a busy machine the agent starts late.
SPARE_SECONDS: Final = 10.0
START_SECONDS: Final = 300.0  # an hour's requests are made first
END_SECONDS: Final = 300.0  # an engine that got too little CPU is behind its time


@dataclass(frozen=True, slots=True)
class SoakFigures:
    """What `--json` prints. CPU is of one core, of the agent alone; memory in millions of bytes."""

    seconds: float
    tenants: int
    events_per_second: float
    cpu_percent: float
    cpu_ms_per_commit: float
    commits_per_second: float
    rss_start_mb: float
    rss_end_mb: float
    rss_peak_mb: float
    rss_growth_mb: float
    queryable_p50_ms: float | None
    queryable_p99_ms: float | None
    events_emitted: int  # over the whole run, warm-up too
    events_stored: int
    events_lost: int
    load_average: float  # of the machine, over the last minute

    @property
    def is_whole(self) -> bool:
        """Whether everything that the engine emitted is in the store."""
        return self.events_stored == self.events_emitted and not self.events_lost


def main(argv: Sequence[str]) -> int:
    """Run `kvpulse bench soak`."""
    options = _parser().parse_args(argv)
    with (
        exit_on(signal.SIGTERM),
        tempfile.TemporaryDirectory(prefix="kvpulse-soak-", dir=fast_folder()) as memory,
        tempfile.TemporaryDirectory(prefix="kvpulse-soak-") as disk,
    ):
        figures = soak(options, Path(memory) / "journal", Path(disk))
    print(json.dumps(asdict(figures)) if options.json else _in_words(figures))
    return ExitCode.GOOD if figures.is_whole else ExitCode.BAD_ANSWER


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kvpulse bench soak",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Exit codes: 0 all is stored, 1 events are missing, 3 engine or agent failed.",
    )
    seconds = "how long to look, after the warm-up (default %(default)s)"
    parser.add_argument("--seconds", type=_above_zero, default=60.0, help=seconds)
    warm_up = "left out at the beginning (default %(default)s)"
    parser.add_argument("--warm-up-seconds", type=_above_zero, default=10.0, help=warm_up)
    rate = "about how many the engine emits (default %(default)s)"
    parser.add_argument("--events-per-second", type=_above_zero, default=20_000, help=rate)
    parser.add_argument("--tenants", type=int, default=8, help="default %(default)s")
    profile = "run the agent under cProfile into this file; it costs more then"
    parser.add_argument("--profile", type=Path, metavar="FILE", help=profile)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def _above_zero(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return value


def soak(options: argparse.Namespace, journal: Path, disk: Path) -> SoakFigures:
    """Start engine and agent, look at them, and wait until the engine's last event is stored.

    Raises:
        SoakError: One of them failed, or did not come to its end.
    """
    journal.mkdir(mode=0o700)
    store = str(disk / "kvpulse.db")
    with running("agent", _agent(options, journal, store), disk) as agent:
        with running("engine", _engine(options, journal), disk) as engine:
            run = _first_run(store, (agent, engine))
            time.sleep(options.warm_up_seconds)
            stream = StreamReader(list_streams(journal)[0])
            with stream, closing(open_reads(store)) as reads:
                watch = Watch(agent.process.pid, stream, reads, run.run_key)
                seen = _look(watch, options.seconds, (agent, engine))
            said = json.loads(engine.output(seconds=END_SECONDS, accepted=ENGINE_CODES))
        run = _ended_run(store, agent)
    return _figures(seen, options.tenants, said, run)


def _agent(options: argparse.Namespace, journal: Path, store: str) -> list[str]:
    profiled = ["-m", "cProfile", "-o", str(options.profile)] if options.profile else []
    flags = ["--journal", str(journal), "--store", store, "--port", "0"]
    return [*profiled, "-m", "kvpulse", "agent", *flags]


def _engine(options: argparse.Namespace, journal: Path) -> list[str]:
    seconds = options.warm_up_seconds + options.seconds + SPARE_SECONDS
    rate = options.events_per_second / EVENTS_PER_REQUEST
    requests = int(rate * seconds * 1.5) + 20  # arrivals come in bursts; the time ends the run
    return [
        *("-m", "kvpulse", "replay", "workload", *ENGINE, "--json", "--journal", str(journal)),
        *("--requests", str(requests), "--requests-per-second", str(rate)),
        *("--seconds", str(seconds), "--tenants", str(options.tenants)),
    ]


def _first_run(store: str, parts: Sequence[Part]) -> EngineRow:
    """Wait until the agent has stored the engine's first events."""
    deadline = time.monotonic() + START_SECONDS
    _say("starting engine and agent")
    while time.monotonic() < deadline:
        for part in parts:
            part.check()
        runs = _runs(store)
        if runs:
            return runs[0]
        time.sleep(POLL_SECONDS)
    raise parts[0].failed(f"stored nothing within {START_SECONDS:g} s")


def _ended_run(store: str, agent: Part) -> EngineRow:
    """Wait until the agent has seen the engine's end, and stored everything before it."""
    deadline = time.monotonic() + END_SECONDS
    while time.monotonic() < deadline:
        agent.check()
        (run,) = _runs(store)
        if run.state is RunState.FINISHED:
            return run
        time.sleep(POLL_SECONDS)
    raise agent.failed(f"had not stored the engine's end after {END_SECONDS:g} s")


def _runs(store: str) -> list[EngineRow]:
    try:
        with closing(open_reads(store)) as reads:
            return reads.engines()
    except StoreError:
        return []  # not made yet


def _look(watch: Watch, seconds: float, parts: Sequence[Part]) -> Seen:
    """Look for so many seconds, and say now and then how it stands."""
    passed, next_said = 0.0, PROGRESS_SECONDS
    while passed < seconds:
        time.sleep(LOOK_SECONDS)
        passed = watch.look()
        if passed >= next_said:
            next_said += PROGRESS_SECONDS
            for part in parts:
                part.check()
            seen = watch.seen()
            _say(
                f"{passed:.0f} of {seconds:g} s, {seen.num_events:,} events,"
                f" {seen.cpu_percent:.2f} % of a core, {seen.rss_end_mb:.1f} MB"
            )
    return watch.seen()


def _figures(seen: Seen, num_tenants: int, said: Mapping[str, int], run: EngineRow) -> SoakFigures:
    return SoakFigures(
        seconds=round(seen.seconds, 1),
        tenants=num_tenants,
        events_per_second=round(seen.num_events / seen.seconds),
        cpu_percent=round(seen.cpu_percent, 2),
        cpu_ms_per_commit=round(10 * seen.cpu_percent * seen.seconds / max(seen.commits, 1), 2),
        commits_per_second=round(seen.commits / seen.seconds, 2),
        rss_start_mb=round(seen.rss_start_mb, 1),
        rss_end_mb=round(seen.rss_end_mb, 1),
        rss_peak_mb=round(seen.rss_peak_mb, 1),
        rss_growth_mb=round(seen.rss_end_mb - seen.rss_start_mb, 1),
        queryable_p50_ms=seen.queryable_p50_ms,
        queryable_p99_ms=seen.queryable_p99_ms,
        events_emitted=said["events_emitted"],
        events_stored=run.events_stored,
        events_lost=run.events_lost + said["events_not_written"],
        load_average=round(os.getloadavg()[0], 2),
    )


def _say(text: str) -> None:
    print(f"soak: {text}", file=sys.stderr, flush=True)


def _in_words(figures: SoakFigures) -> str:
    return "\n".join(f"{name:20} {value}" for name, value in asdict(figures).items())
