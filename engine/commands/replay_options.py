"""The command line of `kvpulse replay`."""

import argparse
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from engine.config import PREFIX_INDEXES
from engine.faults.options import add_fault_options
from engine.option_types import positive, positive_duration
from engine.simulation.cost_model import CostModel
from engine.simulation.trace_recording import TRACE_CONFIG, TraceRun
from kvpulse.paths import journal_dir

MIB: Final = 2**20
WORKLOAD: Final = "workload"


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """What was asked for.

    Attributes:
        trace: A file, or "workload" for the seeded one.
        num_requests, requests_per_second: Of the seeded one; None: as `WorkloadShape` has it.
    """

    trace: str
    num_requests: int | None
    requests_per_second: float | None
    journal: Path
    num_tenants: int
    seed: int
    cancel_ratio: float
    as_json: bool
    run: TraceRun


def parse_options(argv: list[str]) -> ReplayOptions:
    """Read the command line; a wrong one ends the process with 2 and says what is accepted."""
    parser = _parser()
    given = parser.parse_args(argv)
    if not 1 <= given.tenants <= 1_000:
        parser.error(f"--tenants is {given.tenants}; accepted: 1 to 1000")
    if not 0 <= given.cancel_ratio <= 1:
        parser.error(f"--cancel-ratio is {given.cancel_ratio}; accepted: 0 to 1")
    if given.trace != WORKLOAD and (given.requests or given.requests_per_second):
        parser.error('--requests and --requests-per-second are of the trace "workload" alone')
    config = replace(
        TRACE_CONFIG,
        engine=given.engine,
        total_blocks=given.total_blocks,
        block_size=given.block_size,
        max_batch=given.max_batch,
        max_queue=given.max_queue,
        token_budget=given.token_budget,
        max_context=given.max_context,
        watermark_ratio=given.watermark_ratio,
        prefix_caching=not given.no_prefix_caching,
        prefix_index=given.prefix_index,
    )
    run = TraceRun(
        config=config,
        cost=CostModel(
            base_ns=round(given.step_ms * 1e6), prefill_token_ns=round(given.prefill_us * 1e3)
        ),
        speed=given.speed,
        seconds=given.seconds,
        max_bytes=given.max_journal_mib * MIB,
        faults=tuple(given.fault),
        faults_truth=given.faults_truth,
    )
    return ReplayOptions(
        trace=given.trace,
        num_requests=given.requests,
        requests_per_second=given.requests_per_second,
        journal=given.journal or journal_dir(),
        num_tenants=given.tenants,
        seed=given.seed,
        cancel_ratio=given.cancel_ratio,
        as_json=given.json,
        run=run,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kvpulse replay",
        description="Drive the simulated engine through a trace and record its events.",
        epilog="Traces: Mooncake JSONL, Azure CSV, BurstGPT CSV. Exit codes: 0 good, 1 events were "
        "lost, 2 usage or an unreadable line, 3 no such file.",
    )
    parser.add_argument("trace", metavar="TRACE", help='a trace file, or "workload": a seeded one')
    parser.add_argument("--journal", type=Path, help=f"journal folder (default {journal_dir()})")
    parser.add_argument(
        "--speed", type=_speed, default="max", help='engine seconds per wall second, or "max"'
    )
    parser.add_argument("--seconds", type=positive_duration, help="stop after so much engine time")
    help_text = "how many requests the workload has (default 6000)"
    parser.add_argument("--requests", type=positive, help=help_text)
    help_text = "at which rate they come, on average (default 3.2)"
    parser.add_argument("--requests-per-second", type=positive_duration, help=help_text)
    parser.add_argument("--tenants", type=int, default=8, help="number of tenants (default 8)")
    parser.add_argument("--seed", type=int, default=0, help="of arrival times and tenants")
    parser.add_argument(
        "--cancel-ratio", type=float, default=0.0, help="part of the clients that leave early"
    )
    parser.add_argument("--max-journal-mib", type=positive, default=1_024, help="default 1024")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    help_text = "tokens from a cost model, no model: the one way there is, and the default"
    parser.add_argument("--simulated", action="store_true", help=help_text)
    add_fault_options(parser)
    help_text = "what a step costs beside its tokens, in ms (default 6)"
    parser.add_argument("--step-ms", type=positive_duration, default=6.0, help=help_text)
    help_text = "what a token of a prompt costs, in µs (default 10)"
    parser.add_argument("--prefill-us", type=positive_duration, default=10.0, help=help_text)
    parser.add_argument("--no-prefix-caching", action="store_true")
    help_text = "how the prefix cache finds what is kept: by block hashes, by a radix tree (hash)"
    parser.add_argument("--prefix-index", choices=PREFIX_INDEXES, default="hash", help=help_text)
    parser.add_argument("--engine", default=TRACE_CONFIG.engine, help="its name in the journal")
    for name in ("total_blocks", "block_size", "max_batch", "max_queue", "token_budget"):
        default = getattr(TRACE_CONFIG, name)
        flag = "--" + name.replace("_", "-")
        parser.add_argument(flag, type=int, default=default, help=f"default {default}")
    default = TRACE_CONFIG.max_context
    parser.add_argument("--max-context", type=int, default=default, help=f"default {default}")
    ratio = TRACE_CONFIG.watermark_ratio
    parser.add_argument("--watermark-ratio", type=float, default=ratio, help=f"default {ratio}")
    return parser


def _speed(text: str) -> float | None:
    if text == "max":
        return None
    try:
        speed = float(text)
    except ValueError:
        speed = 0.0
    if not 0 < speed < float("inf"):
        raise argparse.ArgumentTypeError(f'{text!r} is neither a number above 0 nor "max"')
    return speed
