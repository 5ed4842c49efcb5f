"""`kvpulse drill --decomposition`: are explanations right? Pairs of which the truth is known."""

import argparse
import json
import sys
from typing import Any, Final

from engine.decomposition_drill.outcome import Outcome, summary
from engine.decomposition_drill.plan import NUM_QUICK, NUM_SEEDS, plan_pairs
from engine.decomposition_drill.run import run_pair
from engine.option_types import positive

EXIT_GOOD: Final = 0
EXIT_BAD: Final = 1


def main(argv: list[str]) -> int:
    """Run the drill; exit with 1 when more than 1 in 20 of a case is explained wrongly."""
    given = _parser().parse_args(argv)
    pairs = list(plan_pairs(NUM_QUICK if given.quick else given.seeds))
    pairs = [pair for pair in pairs if given.only in pair.case.value]
    outcomes: list[Outcome] = []
    for pair in pairs:
        outcomes.append(run_pair(pair))
        told = f"{len(outcomes)} of {len(pairs)}: {_outcome_line(outcomes[-1])}"
        print(told, file=sys.stderr, flush=True)
    answer = summary(outcomes)
    print(json.dumps(answer) if given.json else "\n".join(_in_words(answer)))
    return EXIT_BAD if answer["failed"] else EXIT_GOOD


def _outcome_line(outcome: Outcome) -> str:
    share = "" if outcome.ratio is None else f", {outcome.ratio:.0%} to what changed"
    right = "right" if outcome.is_right else "WRONG"
    told = f"{outcome.answer.value}{share}, fidelity {outcome.fidelity:.0%}"
    return f"{outcome.case.value}, seed {outcome.seed}: {told}: {right}"


def _in_words(answer: dict[str, Any]) -> list[str]:
    lines = [f"{'changed':16}{'right':>9}{'least share':>13}{'median':>8}{'fidelity':>16}"]
    for name, row in answer["table"].items():
        shares = [
            "-" if row[key] is None else f"{row[key]:.0%}"
            for key in ("least_ratio", "median_ratio")
        ]
        right = f"{row['right']} of {row['runs']}"
        fidelity = f"{row['least_fidelity']:.0%} to {row['most_fidelity']:.0%}"
        lines.append(f"{name:16}{right:>9}{shares[0]:>13}{shares[1]:>8}{fidelity:>16}")
    return [*lines, f"failed: {', '.join(answer['failed']) or 'none'}"]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kvpulse drill",
        description=__doc__,
        epilog="Each pair is two runs of the simulated engine, with noise and a cost that the fit"
        " lacks: alike, one group changed, or a minute without admissions. 20 seeds take some ten"
        " minutes of CPU. Exit code 1: more than 1 in 20 of a case is explained wrongly.",
    )
    parser.add_argument("--decomposition", action="store_true", help="drill explanations")
    parser.add_argument("--quick", action="store_true", help=f"{NUM_QUICK} seeds of each case")
    parser.add_argument("--seeds", type=positive, default=NUM_SEEDS, help="of each case")
    parser.add_argument("--only", default="", metavar="TEXT", help="cases that contain it")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
