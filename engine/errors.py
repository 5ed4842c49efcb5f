"""Errors of the engine.

    EngineError
    ├── ConfigError         a setting that cannot be used
    ├── TraceError          a trace file that cannot be replayed
    ├── StepMemoryError     the model ran out of memory in a step
    └── PoolError           the pool's structures disagree: a bug
        └── AccountError    scheduler and pool disagree: a bug

Refusals of requests and of allocations are values (`Rejection`, `AllocationRefusal`), not errors.
"""

from pathlib import Path


class EngineError(Exception):
    """Base of everything the engine raises on purpose."""


class ConfigError(EngineError):
    """A setting has a value that cannot be used."""

    exit_code = 2

    def __init__(self, name: str, *, found: object, accepted: str) -> None:
        super().__init__(f"{name} is {found!r}; accepted: {accepted}")
        self.name = name
        self.found = found
        self.accepted = accepted


class TraceError(EngineError):
    """A line of a trace file cannot be read."""

    exit_code = 2

    def __init__(self, path: Path, line: int, *, found: str, accepted: str) -> None:
        super().__init__(f"{path}, line {line}: {found}; accepted: {accepted}")
        self.path = path
        self.line = line
        self.found = found
        self.accepted = accepted


class StepMemoryError(EngineError):
    """The model ran out of memory in a step, and nothing of it was computed.

    A runner raises it in place of a result. The plan's block moves are done by then; the engine
    makes smaller steps from there on, and ends a request only if it cannot.
    """

    def __init__(self, detail: str) -> None:
        super().__init__(f"out of memory in a step: {detail}")
        self.detail = detail


class PoolError(EngineError):
    """A recount of the pool found what only a bug can cause."""


class AccountError(PoolError):
    """The scheduler's tables and the pool's counts disagree."""
