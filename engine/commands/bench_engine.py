"""`kvpulse bench engine`: tokens per second on a real model, and what recording costs a step."""

import argparse
import json
import sys
from typing import Final

from engine.commands import bench_model, bench_simulated
from engine.errors import EngineError

EXIT_GOOD: Final = 0
EXIT_UNREACHABLE: Final = 3
DEFAULT_SEED: Final = 20_261_130


def main(argv: list[str]) -> int:
    """Measure and print; the figures go to stdout, the seed to stderr."""
    options = _parse(argv)
    print(f"bench engine: seed {options.seed}, model {options.model}", file=sys.stderr)
    try:
        figures = measure(model=options.model, repeats=options.repeat, seed=options.seed)
    except EngineError as error:
        print(f"bench engine: {error}", file=sys.stderr)
        return EXIT_UNREACHABLE
    if options.json:
        print(json.dumps(figures, indent=2))
    else:
        for name, value in figures.items():
            print(f"{name:<48} {value:>14,.1f}")
    return EXIT_GOOD


def measure(*, model: str, repeats: int, seed: int) -> dict[str, float]:
    """Return every figure of the engine: the model's with one and two threads, the simulation's.

    Raises:
        EngineError: The model is missing, torch is, or an answer was wrong.
    """
    figures: dict[str, float] = {}
    for num_threads, suffix in ((1, ""), (2, "_2_threads")):
        measured = bench_model.measure(
            model=model, num_threads=num_threads, repeats=repeats, seed=seed
        )
        figures[f"output_tokens_per_second{suffix}"] = measured.tokens_per_second
        figures[f"output_tokens_per_cpu_second{suffix}"] = measured.tokens_per_cpu_second
    return figures | bench_simulated.measure()


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="kvpulse bench engine",
        description=(
            f"{bench_model.NUM_PROMPTS} prompts of {bench_model.PROMPT_TOKENS} tokens, "
            f"{bench_model.OUTPUT_TOKENS} outputs each, greedy, fp32, prefix caching off, with one "
            "thread and with two; then the simulated runner with recording on and off."
        ),
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--seed", type=int, default=DEFAULT_SEED, help="draws the prompts")
    parser.add_argument(
        "--model", default="smollm2", help="anything that `kvpulse serve --model` takes"
    )
    parser.add_argument(
        "--repeat", type=_positive, default=3, help="timed runs of each; the median counts"
    )
    return parser.parse_args(argv)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not at least 1")
    return number


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
