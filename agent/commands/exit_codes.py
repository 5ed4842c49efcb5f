"""What a command ends with; errors carry their own (`AgentError.exit_code`)."""

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of every kvpulse command."""

    GOOD = 0
    BAD_ANSWER = 1
    USAGE = 2
    UNREACHABLE = 3
    UNKNOWN = 4  # the question cannot be answered from what was recorded
