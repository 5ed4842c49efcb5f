"""The server around the application: which port it takes, and that it stops."""

import socket

import httpx
import pytest

from agent.http import create_app
from agent.http_server import PortError, start_http_server
from tests.agent.factories_live import live_engine, view_of
from tests.waiting import wait_until


@pytest.fixture
def app():
    return create_app(view_of(live_engine()))


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


def _answers(url):
    try:
        httpx.get(url + "/healthz", timeout=1)
    except httpx.HTTPError:
        return False
    return True
