"""What stands in front of every HTTP answer: Host, length and token are checked, headers added.

A page in somebody's browser can be pointed, by its own name server, at 127.0.0.1 (DNS rebinding).
Its requests then carry the page's host name, so only loopback names, and those that the
configuration lists, are answered. The two health paths are exempt, also from the optional token:
probes use whatever address they have, and what they are told is no secret.
"""

import ipaddress
from collections.abc import Collection
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agent.http.access_token import is_authorized

MAX_BODY_BYTES: Final = 65_536  # a longer one is not even waited for
EXEMPT_PATHS: Final = frozenset({"/healthz", "/readyz"})
SECURITY_HEADERS: Final = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "cache-control": "no-store",
}


def host_name(header: str) -> str:
    """Return a Host header's name in lower case, without port and brackets."""
    name = header.strip().lower()
    if name.startswith("["):
        return name[1:].partition("]")[0]
    return name.rpartition(":")[0] if name.count(":") == 1 else name


def is_allowed_host(header: str, allowed: Collection[str]) -> bool:
    """Whether a Host header names this machine's loopback or a listed host."""
    name = host_name(header)
    if name == "localhost" or name in allowed:
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def is_too_long(content_length: str) -> bool:
    """Whether a declared length is above every one that is let in, or no length at all."""
    digits = content_length.strip()
    return not digits.isdecimal() or len(digits) > 9 or int(digits) > MAX_BODY_BYTES


class HostGuard:
    """ASGI middleware: refuses who may not ask and what is too long, adds the security headers."""

    def __init__(
        self, app: ASGIApp, allowed: Collection[str] = (), *, token: str | None = None
    ) -> None:
        self._app = app
        self._allowed = frozenset(name.lower() for name in allowed)
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request or pass it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(SECURITY_HEADERS)
            await send(message)

        answer = self._refusal(scope["path"], Headers(scope=scope)) or self._app
        await answer(scope, receive, send_with_headers)

    def _refusal(self, path: str, headers: Headers) -> Response | None:
        if is_too_long(headers.get("content-length", "0")):
            text = f"a body of more than {MAX_BODY_BYTES} bytes is not read\n"
            return PlainTextResponse(text, status_code=413, headers={"connection": "close"})
        if path in EXEMPT_PATHS:
            return None
        if not is_allowed_host(headers.get("host", ""), self._allowed):
            text = "this host name is not served; use 127.0.0.1, or list it in allowed_hosts\n"
            return PlainTextResponse(text, status_code=421)
        if self._token is None or is_authorized(headers.get("authorization", ""), self._token):
            return None
        text = "send the agent's token: Authorization: Bearer TOKEN\n"
        wanted = {"www-authenticate": 'Bearer realm="kvpulse"'}
        return PlainTextResponse(text, status_code=401, headers=wanted)
