"""`kvpulse replay TRACE`: a production trace through the simulated engine, recorded."""

import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Final

from engine.commands.replay_options import WORKLOAD, ReplayOptions, parse_options
from engine.errors import EngineError
from engine.sharing_report import SharingReport
from engine.simulation.simulated_run import Progress
from engine.simulation.trace import read_trace
from engine.simulation.trace_recording import RecordedTrace, record_trace
from engine.simulation.trace_requests import RequestMaker, TimedRequest
from engine.simulation.workload import WorkloadShape, make_workload
from kvpulse.errors import KvpulseError

EXIT_GOOD: Final = 0
EXIT_LOST: Final = 1
EXIT_USAGE: Final = 2
EXIT_UNREACHABLE: Final = 3
SECONDS_BETWEEN_LINES: Final = 1.0


def main(argv: list[str]) -> int:
    """Replay and print what the engine did; exit with 1 when events were lost."""
    progress = ProgressLine()
    started = time.process_time()
    try:
        options = parse_options(argv)
        requests = load_requests(options)
        recorded = record_trace(
            requests,
            journal=options.journal,
            run=replace(options.run, wall_start_ns=time.time_ns()),
            on_progress=progress.show,
        )
    except OSError as error:
        print(f"kvpulse replay: {error.filename}: {error.strerror}", file=sys.stderr)
        return EXIT_UNREACHABLE
    except (EngineError, KvpulseError) as error:
        print(f"kvpulse replay: {error}", file=sys.stderr)
        return EXIT_USAGE
    progress.end()
    figures = summary(recorded, cpu_seconds=time.process_time() - started)
    print(json.dumps(figures) if options.as_json else summary_text(recorded))
    return EXIT_LOST if recorded.not_written else EXIT_GOOD


def load_requests(options: ReplayOptions) -> list[TimedRequest]:
    """Read the trace, or make the workload."""
    config = options.run.config
    if options.trace == WORKLOAD:
        usual = WorkloadShape()
        shape = WorkloadShape(
            num_requests=options.num_requests or usual.num_requests,
            requests_per_second=options.requests_per_second or usual.requests_per_second,
            num_tenants=options.num_tenants,
            max_context=config.max_context or usual.max_context,
            seed=options.seed,
        )
        return make_workload(shape, block_size=config.block_size)
    maker = RequestMaker(
        config.block_size,
        num_tenants=options.num_tenants,
        seed=options.seed,
        cancel_ratio=options.cancel_ratio,
    )
    return maker.requests(read_trace(Path(options.trace)))


def summary(recorded: RecordedTrace, *, cpu_seconds: float) -> dict[str, object]:
    """Return what a machine may want to know.

    Args:
        cpu_seconds: What the process spent on reading the trace, running and recording it.
    """
    return {
        **recorded.accounts.as_json(),
        "sharing": recorded.sharing.as_json(),
        "events_not_written": recorded.not_written,
        "engine_seconds": round(recorded.engine_ns / 1e9, 3),
        "cpu_seconds": round(cpu_seconds, 3),
        "directory": str(recorded.directory),
    }


def summary_text(recorded: RecordedTrace) -> str:
    """Return what a person wants to know."""
    accounts = recorded.accounts
    ends = ", ".join(f"{n} {reason}" for reason, n in accounts.finished_by_reason.items())
    seconds = recorded.engine_ns / 1e9
    return (
        f"{accounts.requests} requests in {seconds:,.0f} s of engine time: {ends}\n"
        f"{accounts.num_events:,} events, {recorded.not_written} not written; "
        f"{accounts.preemptions} preemptions, {accounts.prefix_hit_tokens:,} tokens found in the "
        f"prefix cache, {accounts.seconds_with_pool_wait} s in which somebody waited for blocks\n"
        f"{sharing_text(recorded.sharing)}\n"
        f"recorded in {recorded.directory}"
    )


def sharing_text(sharing: SharingReport) -> str:
    """Return what sharing gave and cost, as a short table."""
    lookups = sharing.lookups.num_calls
    taken = [sharing.lookups, sharing.identifications, sharing.offers]
    seconds = [calls.seconds for calls in taken if calls.seconds is not None]
    index_time = f"{sum(seconds):,.2f} s" if len(seconds) == len(taken) else "not measured"
    net_time = "not measured" if sharing.net_seconds is None else f"{sharing.net_seconds:,.1f} s"
    rows = (
        ("tokens not computed again", f"{sharing.tokens_not_recomputed:,}"),
        ("  of those asked for", f"{sharing.tokens_queried:,}"),
        ("tokens that forks began with", f"{sharing.tokens_forked:,}"),
        ("not stored, at most", f"{sharing.peak_bytes_not_stored / 2**30:,.2f} GiB"),
        ("not stored, over time", f"{sharing.block_seconds_not_stored:,.0f} block-seconds"),
        ("kept by sharing alone", f"{sharing.outlived_block_seconds:,.0f} block-seconds"),
        ("duplicates given up", f"{sharing.blocks_exchanged:,} blocks"),
        ("copied on write", f"{sharing.bytes_copied / 2**20:,.1f} MiB"),
        ("prefix index", f"{lookups:,} lookups; {index_time} in all (estimated)"),
        ("net", f"{sharing.net_bytes / 2**30:,.2f} GiB not written, {net_time}"),
    )
    return "\n".join(["sharing", *(f"  {name:30}{value}" for name, value in rows)])


class ProgressLine:
    """One line on stderr that says how far the replay is, where stderr is a terminal or not."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._next = 0.0
        self._shown = False

    def show(self, progress: Progress) -> None:
        """Say how far it is, at most once a second."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + SECONDS_BETWEEN_LINES
        end = "\r" if sys.stderr.isatty() else "\n"
        self._shown = sys.stderr.isatty()
        print(
            f"replay: {progress.num_submitted:,} of {progress.num_requests:,} requests, "
            f"engine time {progress.now_ns / 1e9:,.0f} s, after {now - self._started:,.0f} s",
            end=end,
            file=sys.stderr,
            flush=True,
        )

    def end(self) -> None:
        """Leave the line."""
        if self._shown:
            print(file=sys.stderr)
