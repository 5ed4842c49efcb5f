"""What a metrics page does that stops us; the tree is drawn in `agent.errors`."""

from typing import ClassVar

from agent.errors import AgentError


class NeedsJournal(AgentError):
    """An engine is known by its metrics page, which does not tell what was asked."""

    exit_code: ClassVar[int] = 4

    def __init__(self, engine: str, page: str) -> None:
        super().__init__(
            f"{engine} is known by its metrics page {page}, which names no owners, events or"
            " audits; an engine that records a journal has them (docs/attach.md)"
        )
        self.engine = engine


class PageUnreachable(AgentError):
    """An engine's metrics page did not come; `label` is its address without credentials."""

    def __init__(self, label: str, why: str) -> None:
        super().__init__(
            f"cannot read {label}: {why}; see that the engine runs and that the address is its"
            " metrics page"
        )
        self.label = label
        self.why = why


class PageUnreadable(AgentError):
    """What came is no metrics page, or not one of an engine that we know."""

    def __init__(self, label: str, why: str) -> None:
        super().__init__(
            f"cannot use {label}: {why}; give the address of a vLLM or SGLang /metrics page"
        )
        self.label = label
        self.why = why
