"""Fetch one page of somebody else's server: bounded in time and size, and never led elsewhere."""

import http.client
import socket
import ssl
import threading
from contextlib import suppress
from typing import Final

from agent.scraped.address import PageAddress
from agent.scraped.errors import PageUnreachable

MOST_BYTES: Final = 8 << 20
OK: Final = 200
REDIRECTS: Final = range(300, 400)
PART_BYTES: Final = 1 << 16


def fetch(address: PageAddress, *, timeout_seconds: float) -> bytes:
    """Return a page's body.

    A redirect is not followed: it could lead to a server that nobody named. No proxy is used.

    Args:
        timeout_seconds: For the whole of it, however slowly the server sends.

    Raises:
        PageUnreachable: No whole page came; the message says why, and holds no credentials.
    """
    connection = _connection(address, timeout_seconds)
    # A timeout of the socket is one of each read; a server that drips would never meet it.
    is_late = threading.Event()
    sockets: list[socket.socket] = []  # an answer may take it over from the connection
    watch = threading.Timer(timeout_seconds, _cut, (sockets, is_late))
    watch.daemon = True
    watch.start()
    try:
        connection.connect()
        sockets.append(connection.sock)
        body = _get(connection, address)
        if is_late.is_set():
            raise TimeoutError  # a cut answer without a stated length looks like a whole one
        return body
    except (OSError, http.client.HTTPException, ValueError) as error:
        if is_late.is_set() or isinstance(error, TimeoutError):
            why = f"no whole answer within {timeout_seconds:g} s"
        else:
            why = _reason(error)
        raise PageUnreachable(address.label, why) from error
    finally:
        watch.cancel()
        connection.close()


def _connection(address: PageAddress, timeout_seconds: float) -> http.client.HTTPConnection:
    if address.scheme == "https":
        return http.client.HTTPSConnection(
            address.host,
            address.port,
            timeout=timeout_seconds,
            context=ssl.create_default_context(),
        )
    return http.client.HTTPConnection(address.host, address.port, timeout=timeout_seconds)


def _cut(sockets: list[socket.socket], is_late: threading.Event) -> None:
    is_late.set()
    for each in sockets:
        with suppress(OSError):  # it may have come to its end by itself just now
            each.shutdown(socket.SHUT_RDWR)


def _get(connection: http.client.HTTPConnection, address: PageAddress) -> bytes:
    headers = {"Accept": "text/plain, application/json", "User-Agent": "kvpulse"}
    if address.authorization:
        headers["Authorization"] = address.authorization
    connection.request("GET", address.path, headers=headers)
    with connection.getresponse() as answer:
        return _body(answer, address)


def _body(answer: http.client.HTTPResponse, address: PageAddress) -> bytes:
    if answer.status in REDIRECTS:
        raise PageUnreachable(
            address.label, f"it redirects (HTTP {answer.status}), which is not followed"
        )
    if answer.status != OK:
        raise PageUnreachable(address.label, f"HTTP {answer.status}")
    parts: list[bytes] = []
    size = 0
    while part := answer.read(PART_BYTES):
        size += len(part)
        if size > MOST_BYTES:
            raise PageUnreachable(address.label, f"it is larger than {MOST_BYTES >> 20} MiB")
        parts.append(part)
    if answer.length:
        raise PageUnreachable(address.label, f"it ends {answer.length} bytes early")
    return b"".join(parts)


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    return f"no proper answer over HTTP ({type(error).__name__})"
