"""`kvpulse drill --triage`: put faults into engines and see whether triage finds them."""

import argparse
import json
import logging
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Final

from agent.commands.exit_codes import ExitCode
from agent.drill.outcome import Outcome, summary
from agent.drill.run import run_scenario
from agent.drill.scenario import Scenario, faulted, healthy, pairs, quick

HEALTHY_HOURS: Final = 4.0  # of each long run; more than 20 engine-hours in all


def main(argv: Sequence[str]) -> int:
    """Run `kvpulse drill --triage`."""
    arguments = _parser().parse_args(argv)
    logging.getLogger("alembic").setLevel(logging.WARNING)
    scenarios = [each for each in _chosen(arguments) if arguments.only in each.name]
    outcomes = []
    for outcome in _run(scenarios, jobs=arguments.jobs):
        outcomes.append(outcome)
        if not arguments.json:
            print(_line(outcome), flush=True)
    answer = summary(outcomes)
    print(json.dumps(answer) if arguments.json else _in_words(outcomes))
    bad = answer["missed"] or answer["forbidden"] or answer["false_alarms"]
    return ExitCode.BAD_ANSWER if bad else ExitCode.GOOD


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kvpulse drill",
        description=__doc__,
        epilog="Each run is a simulated engine in a process of its own, its journal, a ledger and a"
        " store of its own, judged every 10 s of engine time. Exit code 1: something was missed, a"
        " forbidden answer was given, or there was a false alarm.",
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
    jobs = os.cpu_count() or 1
    parser.add_argument("--jobs", type=int, default=jobs, help=f"runs at once (default {jobs})")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def _chosen(arguments: argparse.Namespace) -> Iterator[Scenario]:
    if arguments.quick:
        yield from quick()
        return
    yield from faulted()
    if arguments.pairs:
        yield from pairs()
    yield from healthy(arguments.healthy_hours)


def _run(scenarios: list[Scenario], *, jobs: int) -> Iterator[Outcome]:
    if jobs <= 1:
        yield from map(run_scenario, scenarios)
        return
    with ProcessPoolExecutor(max_workers=jobs) as executor:
        yield from executor.map(run_scenario, scenarios)


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
