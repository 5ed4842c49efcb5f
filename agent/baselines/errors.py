"""What can be wrong with a baseline, or with what is asked of one."""

from typing import ClassVar

from agent.errors import AgentError


class BaselineError(AgentError):
    """A baseline or a comparison cannot be had as asked."""

    exit_code: ClassVar[int] = 2


class BaselineDamaged(BaselineError):
    """A saved series cannot be read."""

    exit_code: ClassVar[int] = 3


class BaselineRefused(BaselineError):
    """A name, a window or an engine cannot be used; the message says what can."""


class BaselineNotFound(BaselineError):
    """Nothing is saved under the name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no baseline {name!r}; `kvpulse baseline list` names those there are")
        self.name = name


class BaselineExists(BaselineError):
    """The name is taken: a baseline is never overwritten."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"there is a baseline {name!r} already; choose another name, or delete it first with"
            f" `kvpulse baseline delete {name}`"
        )
        self.name = name


class RecordingGone(BaselineError):
    """A window cannot be replayed: its events are not kept, or are not those of one run."""


class BaselineBusy(BaselineError):
    """Another comparison is being worked out."""

    exit_code: ClassVar[int] = 3

    def __init__(self) -> None:
        super().__init__("another comparison is being worked out: try again in a second")
