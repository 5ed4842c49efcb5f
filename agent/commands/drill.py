"""`kvpulse drill`: try triage or comparisons on engines of which the truth is known."""

import sys
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from agent.commands import drill_baselines, drill_triage
from agent.commands.exit_codes import ExitCode

DRILLS: Final[Mapping[str, Callable[[Sequence[str]], int]]] = MappingProxyType(
    {"--triage": drill_triage.main, "--baselines": drill_baselines.main}
)
USAGE: Final = """usage: kvpulse drill --triage | --baselines [options]

  --triage     faults put in on purpose: does triage find them?
  --baselines  engines alike, slower or smaller: are comparisons right?

`kvpulse drill --triage --help` and `kvpulse drill --baselines --help` say more."""


def main(argv: Sequence[str]) -> int:
    """Run the drill that was named."""
    named = [drill for flag, drill in DRILLS.items() if flag in argv]
    if len(named) == 1:
        return named[0](argv)
    if {"-h", "--help"} & set(argv):
        print(USAGE)
        return ExitCode.GOOD
    print(USAGE, file=sys.stderr)
    return ExitCode.USAGE
