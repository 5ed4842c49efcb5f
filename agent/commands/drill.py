"""`kvpulse drill`: try triage, comparisons, explanations on engines of which the truth is known."""

import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from agent.commands import drill_baselines, drill_triage
from agent.commands.exit_codes import ExitCode

DRILLS: Final[Mapping[str, Callable[[Sequence[str]], int]]] = MappingProxyType(
    {"--triage": drill_triage.main, "--baselines": drill_baselines.main}
)
DECOMPOSITION: Final = "--decomposition"
USAGE: Final = """usage: kvpulse drill --triage | --baselines | --decomposition [options]

  --triage     faults put in on purpose: does triage find them?
  --baselines  engines alike, slower or smaller: are comparisons right?
  --decomposition  one thing changed, or none: are explanations right?

Each of them has a --help of its own, such as `kvpulse drill --triage --help`."""


def main(argv: Sequence[str]) -> int:
    """Run the drill that was named."""
    named = [drill for flag, drill in DRILLS.items() if flag in argv]
    if DECOMPOSITION in argv and not named:
        return _in_the_engine(argv)
    if len(named) == 1:
        return named[0](argv)
    if {"-h", "--help"} & set(argv):
        print(USAGE)
        return ExitCode.GOOD
    print(USAGE, file=sys.stderr)
    return ExitCode.USAGE


def _in_the_engine(argv: Sequence[str]) -> int:
    """Run the drill of the simulator's own: the agent does not know the engine."""
    command = [sys.executable, "-m", "engine.commands.drill_decomposition", *argv]
    return subprocess.run(command, check=False).returncode
