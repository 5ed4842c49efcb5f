"""`kvpulse drill --baselines`: are comparisons right? Simulated engines against each other."""

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

from agent.baseline_drill.outcome import Outcome, outcome_of, summary
from agent.baseline_drill.plan import NUM_ALIKE, NUM_CHANGED, plan_pairs
from agent.baseline_drill.recorded import EngineProcess
from agent.baselines.compare import compare
from agent.commands.exit_codes import ExitCode


def main(argv: Sequence[str]) -> int:
    """Run `kvpulse drill --baselines`."""
    arguments = _parser().parse_args(argv)
    pairs = list(plan_pairs(num_alike=arguments.alike, num_changed=arguments.changed))
    outcomes: list[Outcome] = []
    with EngineProcess() as engine:
        for pair in pairs:
            comparison = compare(engine.side(pair.first), engine.side(pair.second))
            outcomes.append(outcome_of(pair, comparison))
            told = f"{len(outcomes)} of {len(pairs)}: {pair.case.value} at {pair.first.load:g}"
            print(f"{told}: {comparison.answer.value}", file=sys.stderr, flush=True)
    answer = summary(outcomes)
    print(json.dumps(answer) if arguments.json else "\n".join(_in_words(answer)))
    return ExitCode.BAD_ANSWER if answer["failed"] else ExitCode.GOOD


def _in_words(answer: dict[str, Any]) -> list[str]:
    lines = [
        f"{name:24} " + ", ".join(f"{number} {what}" for what, number in row.items())
        for name, row in answer["table"].items()
    ]
    return [*lines, f"failed: {', '.join(answer['failed']) or 'none'}"]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kvpulse drill",
        description=__doc__,
        epilog="Each pair is two runs of the simulated engine: alike but for the seed (1 h and"
        " 4 h), decoding a fifth slower, a pool a quarter smaller. All of it takes about an hour"
        " of CPU. Exit code 1: more than 5 % false alarms, or a change was not seen.",
    )
    parser.add_argument("--baselines", action="store_true", required=True, help="drill comparisons")
    parser.add_argument("--alike", type=int, default=NUM_ALIKE, help="pairs of each length")
    parser.add_argument("--changed", type=int, default=NUM_CHANGED, help="pairs of each change")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser
