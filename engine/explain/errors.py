"""Why a difference cannot be explained at all."""

from typing import ClassVar

from engine.errors import EngineError


class CannotBeExplained(EngineError):
    """A recording cannot be replayed; the text says why, and what to do."""

    exit_code: ClassVar[int] = 4
