"""Note when the first byte of each HTTP request came, before anything of it was read or parsed.

The time from there to the engine's `arrive` is what the server itself takes: reading and parsing
the head, waiting for the rest of the body, tokenising, and waiting for the event loop and for the
engine's step to end. A connection that a client opens ahead of need costs nobody anything, so that
the clock starts with the first byte and not with the connection.
"""

import time
from collections.abc import Callable
from typing import Any, Final

import h11
from starlette.types import Scope
from uvicorn.protocols.http.h11_impl import H11Protocol

STATE_KEY: Final = "kvpulse_accepted_ns"


class TimedHttpProtocol(H11Protocol):
    """uvicorn's HTTP/1.1 protocol, which also notes when each request began to come."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.app_state = dict(self.app_state)  # of this connection; each request gets a copy

    def data_received(self, data: bytes) -> None:
        """Take bytes from the socket; the first of a request start its clock."""
        if self.conn.their_state is not h11.SEND_BODY and not self.conn.trailing_data[0]:
            self.app_state[STATE_KEY] = time.monotonic_ns()
        super().data_received(data)


def accepted_ns(scope: Scope, now_ns: Callable[[], int] = time.monotonic_ns) -> int:
    """Return when the request's first byte came, in monotonic ns; now, if nobody noted it."""
    noted = scope.get("state", {}).get(STATE_KEY)
    return noted if isinstance(noted, int) else now_ns()
