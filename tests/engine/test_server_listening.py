"""Which port a server takes, and for which hosts it answers."""

import asyncio
import socket

import pytest

from engine.server.http_guard import LOOPBACK_NAMES, HostGuard
from engine.server.listening import AddressError, PortTakenError, bind_exactly, bind_next_free


def test_the_next_free_port_is_taken_when_one_is_in_use():
    first = bind_exactly("127.0.0.1", 0)
    second = bind_next_free("127.0.0.1", first.port)
    try:
        assert second.port > first.port
        assert second.asked_port == first.port
        assert second.url == f"http://127.0.0.1:{second.port}"
    finally:
        first.socket.close()
        second.socket.close()


def test_a_port_that_was_asked_for_is_not_swapped_for_another():
    first = bind_exactly("127.0.0.1", 0)
    try:
        with pytest.raises(PortTakenError, match=str(first.port)):
            bind_exactly("127.0.0.1", first.port)
    finally:
        first.socket.close()


def test_an_address_of_another_machine_is_refused_with_the_flag_to_mend():
    with pytest.raises(AddressError, match="--host"):
        bind_exactly("192.0.2.1", 0)


def test_the_listener_is_bound_to_loopback_only():
    listener = bind_next_free("127.0.0.1", 0)
    try:
        assert listener.socket.getsockname()[0] == "127.0.0.1"
    finally:
        listener.socket.close()


async def _status(headers: list[tuple[bytes, bytes]]) -> int:
    sent = []

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": "/", "headers": headers}
    await HostGuard(app, allowed=LOOPBACK_NAMES)(scope, None, send)
    return sent[0]["status"]


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        (b"127.0.0.1:8000", None, 200),
        (b"LOCALHOST", None, 200),
        (b"[::1]:8000", None, 200),
        (b"evil.example:8000", None, 403),
        (b"127.0.0.1.evil.example", None, 403),
        (b"", None, 403),
        (b"[", None, 403),
        (b"localhost", b"http://localhost:8501", 200),
        (b"localhost", b"https://evil.example", 403),
        (b"localhost", b"null", 403),
    ],
)
def test_only_names_of_this_machine_are_answered(host, origin, status):
    headers = [(b"host", host)] + ([(b"origin", origin)] if origin else [])

    assert asyncio.run(_status(headers)) == status


def test_the_socket_is_listening_once_bound():
    listener = bind_next_free("127.0.0.1", 0)
    try:
        socket.create_connection(("127.0.0.1", listener.port), timeout=5).close()
    finally:
        listener.socket.close()
