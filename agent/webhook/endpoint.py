"""One attempt to tell the receiver: a POST, a time limit for all of it, no redirect followed."""

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from socket import SHUT_RDWR, socket
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from agent.webhook.message import Message
from agent.webhook.signature import signed_headers

TIMEOUT_SECONDS: Final = 10.0
# Of the client errors, those that pass by themselves.
TRY_AGAIN: Final = frozenset(
    {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS}
)


class Answer(Enum):
    """What an attempt came to."""

    TAKEN = "taken"
    REFUSED = "refused"
    LATER = "later"


class Reply(NamedTuple):
    """An answer, and in words why it is no better."""

    answer: Answer
    why: str = ""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where to, and the key that is shared with whoever listens there; neither is ever shown."""

    url: str = field(repr=False)
    key: bytes = field(repr=False)
    timeout_seconds: float = TIMEOUT_SECONDS

    @property
    def label(self) -> str:
        """Return scheme, host and port: a path or query may be a secret of its own."""
        parts = urlsplit(self.url)
        port = f":{parts.port}" if parts.port else ""
        return f"{parts.scheme}://{parts.hostname}{port}"

    def post(self, message: Message, *, timestamp: int) -> Reply:
        """Make one attempt, dated `timestamp` (seconds since 1970)."""
        headers = {
            "content-type": "application/json",
            "user-agent": "kvpulse",
            **signed_headers(
                self.key, message_id=message.id, timestamp=timestamp, body=message.body
            ),
        }
        parts = urlsplit(self.url)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection = self._connection()
        try:
            with _within(self.timeout_seconds, connection):
                connection.request("POST", target, message.body, headers)
                return _reply(connection.getresponse().status)
        except (OSError, HTTPException, UnicodeError) as error:
            return Reply(Answer.LATER, f"{type(error).__name__}: {error}")

    def _connection(self) -> HTTPConnection:
        parts = urlsplit(self.url)
        host = parts.hostname or ""
        if parts.scheme == "http":
            return HTTPConnection(host, parts.port, timeout=self.timeout_seconds)
        context = ssl.create_default_context()
        return HTTPSConnection(host, parts.port, timeout=self.timeout_seconds, context=context)


@contextmanager
def _within(seconds: float, connection: HTTPConnection) -> Iterator[None]:
    """Cut the connection when the time is up: a socket's own timeout is for one read alone."""
    timer = threading.Timer(seconds, _cut, [connection])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        connection.close()


def _cut(connection: HTTPConnection) -> None:
    if connection.sock is not None:
        with suppress(OSError):
            # Not the method of a TLS socket, which would take the session from under its reader.
            socket.shutdown(connection.sock, SHUT_RDWR)


def _reply(status: int) -> Reply:
    if 200 <= status < 300:
        return Reply(Answer.TAKEN)
    if status in TRY_AGAIN or status >= 500:
        return Reply(Answer.LATER, f"it answered {status}")
    return Reply(Answer.REFUSED, f"it answered {status}")
