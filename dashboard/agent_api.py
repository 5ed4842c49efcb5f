"""What the dashboard asks the agent for: whatever changes the store, which it never writes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from agent.api_client import AgentClient, checked_url
from agent.errors import AgentUnreachable
from agent.http.access_token import read_token
from dashboard.config import DEFAULT_AGENT, DashboardConfig

Document = Mapping[str, Any]
Read = TypeVar("Read")


@dataclass(frozen=True, slots=True)
class AgentApi:
    """Asks one agent. Each call raises an `AgentError` whose text says what to do."""

    config: DashboardConfig

    @property
    def url(self) -> str:
        """Return where the agent is looked for."""
        return self.config.agent_url or DEFAULT_AGENT

    def save_baseline(
        self, name: str, *, engine: str, seconds: float, end_ns: int | None
    ) -> Document:
        """Save a window that ends at a moment; None: with the newest event."""
        body = {"name": name, "engine": engine, "last_seconds": seconds, "end_ns": end_ns}
        return self._client().post("api", "baselines", body=body)

    def delete_baseline(self, name: str) -> Document:
        """Delete a baseline."""
        return self._client().delete("api", "baselines", name)

    def compare(
        self, first: str | None, second: str | None, *, engine: str, seconds: float
    ) -> Document:
        """Hold `second` (None: the newest window) against `first` (None: the same last week)."""
        return self._client().get(
            "api",
            "comparison",
            first=first,
            second=second,
            last_seconds=seconds,
            engine=None if first and second else engine,
        )

    def acknowledge(self, key: int, *, by: str, note: str) -> Document:
        """Say that somebody looks after an incident."""
        body = {"by": by, "note": note}
        return self._client().post("api", "incidents", str(key), "acknowledgement", body=body)

    def understood(self, read: Callable[[Document], Read], document: Document) -> Read:
        """Read an answer; one of another shape is that of another version, or of somebody else."""
        try:
            return read(document)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            why = "its answer is not that of an agent of this version"
            raise AgentUnreachable(self.url, why) from error

    def _client(self) -> AgentClient:
        token_file = self.config.token_file
        return AgentClient(checked_url(self.url), read_token(token_file) if token_file else None)
