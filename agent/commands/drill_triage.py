"""`kvpulse drill --triage`: put faults into engines and see whether triage finds them."""

import argparse
import json
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Final

from agent.commands.exit_codes import ExitCode
from agent.drill.kept import KeptOutcomes
from agent.drill.outcome import Outcome, summary
from agent.drill.run import run_scenario
from agent.drill.scenario import (
    SEEDS,
    Scenario,
    faulted,
    healthy,
    missing_slices,
    pairs,
    quick,
    recorded,
)

HEALTHY_HOURS: Final = 4.0  # of each long run; more than 20 engine-hours in all


def main(argv: Sequence[str]) -> int:
    """Run `kvpulse drill --triage`."""
    arguments = _parser().parse_args(argv)
    logging.getLogger("alembic").setLevel(logging.WARNING)
    scenarios = [each for each in _chosen(arguments) if arguments.only in each.name]
    kept = KeptOutcomes(arguments.keep)
    known = kept.read()
    outcomes = [known[each.name] for each in scenarios if each.name in known]
    left = [each for each in scenarios if each.name not in known]
    skipped = [] if arguments.quick else missing_slices(arguments.traces)
    for name in skipped:
        print(f"{name} is skipped: its trace is not there (--traces DIR)", file=sys.stderr)
    try:
        for outcome in _run(left, jobs=arguments.jobs):
            kept.add(outcome)
            outcomes.append(outcome)
            where = sys.stderr if arguments.json else sys.stdout
            print(f"{len(outcomes)}/{len(scenarios)} {_line(outcome)}", file=where, flush=True)
    except KeyboardInterrupt:
        print("interrupted; this is what came of it so far", file=sys.stderr)
    ran = {outcome.scenario for outcome in outcomes}
    not_run = [each.name for each in scenarios if each.name not in ran]
    answer = {**summary(outcomes), "skipped": skipped, "not_run": not_run}
    print(json.dumps(answer) if arguments.json else _in_words(outcomes))
    bad = answer["missed"] or answer["forbidden"] or answer["false_alarms"] or not_run
    return ExitCode.BAD_ANSWER if bad else ExitCode.GOOD


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kvpulse drill",
        description=__doc__,
        epilog="Each run is a simulated engine in a process of its own, its journal, a ledger and a"
        " store of its own, judged every 10 s of engine time. Exit code 1: something was missed, a"
        " forbidden answer was given, there was a false alarm, or it was interrupted; what came of"
        " it until then is printed all the same.",
    )
    parser.add_argument("--triage", action="store_true", required=True, help="drill the verdicts")
    parser.add_argument("--quick", action="store_true", help="each fault once, short healthy runs")
    parser.add_argument("--pairs", action="store_true", help="two faults at once as well")
    parser.add_argument("--only", metavar="TEXT", default="", help="runs whose name has this in it")
    parser.add_argument(
        "--healthy-hours",
        metavar="H",
        type=float,
        default=HEALTHY_HOURS,
        help=f"engine time of each long healthy run (default {HEALTHY_HOURS:g})",
    )
    parser.add_argument(
        "--seeds",
        metavar="N,…",
        type=_numbers,
        default=SEEDS,
        help="of traffic and faults; healthy runs take the first (default 1,2)",
    )
    parser.add_argument(
        "--traces",
        metavar="DIR",
        type=Path,
        help="a folder with slices of the Azure LLM inference traces 2023, for healthy runs",
    )
    parser.add_argument(
        "--keep",
        metavar="FILE",
        type=Path,
        help="keep outcomes in FILE, and do not run again what is there",
    )
    jobs = os.cpu_count() or 1
    parser.add_argument("--jobs", type=int, default=jobs, help=f"runs at once (default {jobs})")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def _chosen(arguments: argparse.Namespace) -> Iterator[Scenario]:
    if arguments.quick:
        yield from quick()
        return
    first, *_ = arguments.seeds
    yield from faulted(seeds=arguments.seeds)
    if arguments.pairs:
        yield from pairs(seed=first + 2)
    yield from healthy(arguments.healthy_hours, first)
    if arguments.traces is not None:
        yield from recorded(arguments.traces, first)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def _run(scenarios: list[Scenario], *, jobs: int) -> Iterator[Outcome]:
    if jobs <= 1:
        yield from map(run_scenario, scenarios)
        return
    executor = ProcessPoolExecutor(max_workers=jobs)
    try:
        begun = [executor.submit(run_scenario, each) for each in scenarios]
        for done in as_completed(begun):
            yield done.result()
    finally:
        executor.shutdown(cancel_futures=True)


def _line(outcome: Outcome) -> str:
    after = outcome.seconds_to_verdict
    when = "" if after is None else f" after {after:.0f} s"
    bad = outcome.missed or ", ".join(outcome.forbidden) or ", ".join(outcome.false_alarms)
    return (
        f"{'MISS' if bad else 'ok':5}{outcome.scenario:44} {outcome.verdict}{when}  {bad}".rstrip()
    )


def _in_words(outcomes: Sequence[Outcome]) -> str:
    counts = {
        "missed": sum(bool(each.missed) for each in outcomes),
        "forbidden": sum(bool(each.forbidden) for each in outcomes),
        "false alarms": sum(bool(each.false_alarms) for each in outcomes),
    }
    said = ", ".join(f"{number} {name}" for name, number in counts.items())
    return f"{len(outcomes)} runs: {said}"
