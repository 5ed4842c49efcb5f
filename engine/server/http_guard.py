"""Keep web pages of other sites from driving a server that listens on this machine only.

A page can point a name of its own at 127.0.0.1 and send requests there (DNS rebinding), and any
page can send a plain POST across origins; the first shows in `Host`, the second in `Origin`.
"""

from collections.abc import Collection
from typing import Final
from urllib.parse import urlsplit

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from engine.server.openai_errors import ApiError

LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})


class HostGuard:
    """ASGI middleware that answers 403 to a foreign `Host` or `Origin`."""

    def __init__(self, app: ASGIApp, *, allowed: Collection[str]) -> None:
        self._app = app
        self._allowed = frozenset(name.lower() for name in allowed)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it before anything reads its body."""
        if scope["type"] == "http" and (refused := self._refusal(scope)) is not None:
            response = JSONResponse(refused.body(), refused.status, headers=refused.headers)
            await response(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _refusal(self, scope: Scope) -> ApiError | None:
        headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
        if _host_name("//" + headers.get(b"host", "")) not in self._allowed:
            return ApiError(403, "This server does not answer for that Host; see --allowed-host.")
        origin = headers.get(b"origin")
        if origin is not None and _host_name(origin) not in self._allowed:
            return ApiError(403, "This server takes no requests from pages of that Origin.")
        return None


def _host_name(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None
