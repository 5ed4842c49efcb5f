"""Ask the running agent over its HTTP API, as a command or a page does."""

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, urlencode, urlsplit

from agent.errors import AgentUnreachable, ConfigError, RefusedByAgent

TIMEOUT_SECONDS: Final = 60.0
MOST_ANSWER_BYTES: Final = 16 << 20
MOST_FILE_BYTES: Final = 64 << 20
AGENT_VARIABLE: Final = "KVPULSE_AGENT"
SERVER_TROUBLE: Final = 500


@dataclass(frozen=True, slots=True)
class AgentClient:
    """Where the agent answers, and the token that it wants."""

    url: str
    token: str | None = None

    def get(self, *path: str, **query: object) -> dict[str, object]:
        """Ask for a path; a query's None values are left out.

        Raises:
            AgentUnreachable: Nobody answers, or not as an agent does.
            RefusedByAgent: It says no; the text is its own.
        """
        asked = urlencode({name: value for name, value in query.items() if value is not None})
        return self._ask("GET", path, suffix=f"?{asked}" if asked else "")

    def download(self, *path: str, **query: object) -> bytes:
        """Ask for a file; raises as `get` does."""
        return self._content("GET", path, suffix=f"?{urlencode(query)}", most=MOST_FILE_BYTES)

    def post(self, *path: str, body: Mapping[str, object]) -> dict[str, object]:
        """Send an object; raises as `get` does."""
        return self._ask("POST", path, body=json.dumps(body).encode())

    def delete(self, *path: str) -> dict[str, object]:
        """Delete what a path names; raises as `get` does."""
        return self._ask("DELETE", path)

    def _ask(
        self, method: str, path: tuple[str, ...], *, suffix: str = "", body: bytes | None = None
    ) -> dict[str, object]:
        return self._object(self._content(method, path, suffix=suffix, body=body))

    def _content(
        self,
        method: str,
        path: tuple[str, ...],
        *,
        suffix: str = "",
        body: bytes | None = None,
        most: int = MOST_ANSWER_BYTES,
    ) -> bytes:
        where = f"{self.url}/{'/'.join(quote(part, safe='') for part in path)}{suffix}"
        headers = {"accept": "application/json"}
        if body is not None:
            headers["content-type"] = "application/json"
        if self.token is not None:
            headers["authorization"] = f"Bearer {self.token}"
        request = urllib.request.Request(where, data=body, headers=headers, method=method)
        # No proxy: the agent is on this machine or on a network of one's own.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=TIMEOUT_SECONDS) as answer:
                content: bytes = answer.read(most + 1)
                return content
        except urllib.error.HTTPError as error:
            raise self._refusal(error) from error
        except OSError as error:
            raise AgentUnreachable(self.url, str(getattr(error, "reason", error))) from error

    def _object(self, content: bytes) -> dict[str, object]:
        try:
            said = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise AgentUnreachable(self.url, "what answers there is no kvpulse agent") from error
        if not isinstance(said, dict):
            raise AgentUnreachable(self.url, "what answers there is no kvpulse agent")
        return said

    def _refusal(self, error: urllib.error.HTTPError) -> AgentUnreachable | RefusedByAgent:
        content = error.read(4_096)
        try:
            text = str(json.loads(content)["error"])
        except (ValueError, RecursionError, KeyError, TypeError):
            text = content.decode("utf-8", "replace").strip() or f"HTTP {error.code}"
        if error.code >= SERVER_TROUBLE:
            return AgentUnreachable(self.url, text)
        return RefusedByAgent(text)


def checked_url(url: str) -> str:
    """Return an agent's address without a slash at its end.

    Raises:
        ConfigError: It is no such address.
    """
    accepted = "an address such as http://127.0.0.1:9464"
    try:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
            raise ConfigError("--agent", url, accepted)
    except ValueError as error:
        raise ConfigError("--agent", url, accepted) from error
    return url.rstrip("/")
