"""The server around the application: which port it takes, and that it stops."""

import contextlib
import socket

import httpx
import psutil
import pytest

from agent.http.app import create_app
from agent.http.server import PortError, start_http_server
from tests.agent.factories_live import live_engine, view_of
from tests.waiting import wait_until


@pytest.fixture
def app():
    return create_app(view_of(live_engine()))


@pytest.fixture
def server(app):
    server = start_http_server(app, host="127.0.0.1", port=0)
    yield server
    server.stop()


@pytest.fixture
def taken():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_it_answers_on_the_port_it_names_and_stops(app):
    server = start_http_server(app, host="127.0.0.1", port=0)
    assert httpx.get(server.url + "/healthz").text == "ok\n"

    server.stop()

    wait_until(lambda: not _answers(server.url))


def test_a_taken_port_gives_the_next_free_one(app, taken):
    server = start_http_server(app, host="127.0.0.1", port=taken)

    try:
        assert taken < server.port < taken + 20
        assert httpx.get(server.url + "/healthz").status_code == 200
    finally:
        server.stop()


def test_an_address_that_is_not_ours_is_an_error_that_names_it(app):
    with pytest.raises(PortError, match=r"192\.0\.2\.1"):
        start_http_server(app, host="192.0.2.1", port=9464)


def test_it_says_nothing_of_its_own_software(app):
    server = start_http_server(app, host="127.0.0.1", port=0)

    try:
        assert "server" not in httpx.get(server.url + "/healthz").headers
    finally:
        server.stop()


def test_a_header_of_a_megabyte_is_refused_and_the_next_request_answered(server):
    answer = raw(
        server, b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: ", b"x" * 2**20
    )

    assert answer == b"" or answer.startswith(b"HTTP/1.1 4")
    assert httpx.get(server.url + "/healthz").text == "ok\n"


@pytest.mark.parametrize(
    ("length", "status"), [(0, 405), (65_536, 405), (65_537, 413), (10**12, 413), (10**30, 413)]
)
def test_a_long_body_is_refused_before_it_is_sent(server, length, status):
    head = f"POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n"

    answer = raw(server, head.encode(), b"x" * min(length, 65_536))

    assert answer.startswith(b"HTTP/1.1 %d " % status) or (length > 2**63 and b" 400 " in answer)


def test_a_body_without_an_end_takes_no_memory(server):
    process = psutil.Process()
    before = process.memory_info().rss
    head = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunk = b"10000\r\n" + b"x" * 65_536 + b"\r\n"

    raw(server, head, *[chunk] * 1_000)

    assert process.memory_info().rss - before < 32 << 20
    assert httpx.get(server.url + "/healthz").text == "ok\n"


def raw(server, *parts):
    """Send bytes as they are; return what comes back before the peer closes or falls silent."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=1) as connection:
        with contextlib.suppress(OSError):
            for part in parts:
                connection.sendall(part)
        with contextlib.suppress(OSError):
            return connection.recv(65_536)
    return b""


def _answers(url):
    try:
        httpx.get(url + "/healthz", timeout=1)
    except httpx.HTTPError:
        return False
    return True
