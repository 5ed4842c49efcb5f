"""What a command ends with, and how it says why."""

import sys
from collections.abc import Callable
from enum import IntEnum

from agent.errors import AgentError, ConfigError, StoreTooNew, StoreTooOld


class ExitCode(IntEnum):
    """Exit codes of every kvpulse command."""

    GOOD = 0
    BAD_ANSWER = 1
    USAGE = 2
    UNREACHABLE = 3


def exit_code(error: AgentError) -> ExitCode:
    """Return what an expected error ends a command with."""
    if isinstance(error, ConfigError | StoreTooNew | StoreTooOld):
        return ExitCode.USAGE
    return ExitCode.UNREACHABLE


def guarded(command: str, run: Callable[[], int]) -> int:
    """Run a command's body; an expected error becomes one line on stderr and an exit code."""
    try:
        return run()
    except AgentError as error:
        print(f"kvpulse {command}: {error}", file=sys.stderr)
        return exit_code(error)
    except BrokenPipeError:
        sys.stderr.close()  # whoever read our output has gone; nothing is wrong
        return ExitCode.GOOD
