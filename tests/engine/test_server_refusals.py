"""What a client is told when it is refused, and that the refusal comes before any stream."""

import asyncio
import contextlib
import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import openai
import pytest

from engine.server.request_body import MAX_BODY_BYTES
from tests.engine.factories_server import Pending, RunningServer, running_server
from tests.shared_files import shared_path
from tests.waiting import wait_until

SMALL = ("--simulated", "--step-ms", "20", "--num-blocks", "16", "--max-context", "1024")


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("server")
    with running_server(folder, *SMALL, "--max-batch", "2", "--max-queue", "2") as running:
        yield running


@pytest.fixture(scope="module")
def client(server) -> openai.OpenAI:
    with server.client(max_retries=0) as client:
        yield client


@pytest.mark.parametrize("stream", [False, True])
def test_a_prompt_over_the_context_is_refused_before_a_stream_starts(client, stream):
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model="simulated", prompt=[3] * 1100, stream=stream)

    error = caught.value
    recorded = json.loads(shared_path("vllm/error_bodies.json").read_text())
    assert {"error": error.body} == json.loads(recorded["too_long_prompt_completions"]["body"])
    assert error.response.headers["x-kvpulse-reason"] == "context_too_long"
    assert error.response.headers["x-should-retry"] == "false"


def test_a_request_that_the_whole_pool_could_not_hold_is_refused_for_good(client):
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model="simulated", prompt=[3] * 250, max_tokens=50)

    assert caught.value.response.headers["x-kvpulse-reason"] == "exceeds_pool"
    assert caught.value.response.headers["x-should-retry"] == "false"
    assert "19 KV cache blocks, but the pool has 16" in caught.value.message


@contextlib.contextmanager
def _filled(server: RunningServer) -> Iterator[None]:
    """Keep two running and two waiting until the block ends."""
    body = {"prompt": [1, 2], "max_tokens": 240, "stream": True}
    with contextlib.ExitStack() as open_:
        for expected in ((1, 0), (2, 0), (2, 1), (2, 2)):
            open_.enter_context(Pending(server, body))
            wait_until(lambda e=expected: server.state() == e, timeout=30)
        yield


@pytest.mark.parametrize("stream", [False, True])
def test_a_full_queue_answers_429_and_when_to_come_back(server, client, stream):
    with _filled(server):
        with pytest.raises(openai.RateLimitError) as caught:
            client.completions.create(model="simulated", prompt=[1], stream=stream)

        headers = caught.value.response.headers
        assert headers["x-kvpulse-reason"] == "queue_full"
        assert int(headers["retry-after"]) >= 1
        assert headers["x-should-retry"] == "true"


def test_a_draining_engine_answers_503_and_finishes_what_it_has(tmp_path):
    with (
        running_server(tmp_path, *SMALL) as server,
        ThreadPoolExecutor() as pool,
        server.client(max_retries=0) as client,
    ):
        ask = client.completions.create
        long = pool.submit(ask, model="simulated", prompt=[1], max_tokens=99)
        wait_until(lambda: server.accounts()["running"] == 1)
        drain = server.thread.ask(server.served.engine.begin_drain)
        asyncio.run_coroutine_threadsafe(drain, server.loop).result()

        with pytest.raises(openai.InternalServerError) as caught:
            ask(model="simulated", prompt=[1])

        assert caught.value.status_code == 503
        assert caught.value.response.headers["x-kvpulse-reason"] == "shutting_down"
        assert caught.value.response.headers["x-should-retry"] == "true"
        assert long.result().usage.completion_tokens == 99


@pytest.mark.parametrize(
    ("content", "status", "part"),
    [
        (b"{", 400, "not valid JSON"),
        (b"", 400, "not valid JSON"),
        (b"\xff\xfe{}", 400, "not valid JSON"),
        (b"[" * 100_000, 400, "not valid JSON"),
        (b"[1]", 400, "must be an object, got an array"),
        (b'{"prompt": {"a": 1}}', 400, "got an object"),
        (b'{"prompt": [99999999999]}', 400, "Token id 99999999999 is out of vocabulary"),
        (b'{"prompt": "x", "n": 3}', 400, "n must be at most 2 here, got 3"),
        (b'{"prompt": "x", "max_tokens": 1e9}', 400, "must be an integer"),
        (b'{"prompt": "' + b"x" * MAX_BODY_BYTES + b'"}', 413, "larger than"),
    ],
)
def test_a_body_that_cannot_be_served_gets_a_plain_error(server, content, status, part):
    answer = httpx.post(f"{server.url}/v1/completions", content=content)

    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (status, status)
    assert part in error["message"]
    assert answer.headers["x-should-retry"] == "false"
    assert server.accounts()["active_blocks"] == 0


def test_a_body_that_hides_its_size_is_cut_off(server):
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(
            b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        with contextlib.suppress(ConnectionError):
            for _ in range(MAX_BODY_BYTES // 65_536 + 1):
                connection.sendall(b"10000\r\n" + b" " * 65_536 + b"\r\n")

        assert connection.recv(64).startswith(b"HTTP/1.1 413")


def test_an_unknown_model_is_not_found(client):
    with pytest.raises(openai.NotFoundError) as caught:
        client.completions.create(model="nope", prompt="x")

    assert caught.value.body["message"].endswith("does not exist. Valid aliases: simulated.")
    assert caught.value.body["param"] == "model"


def test_an_invalid_request_is_counted_as_an_arrival_that_was_refused(server, client):
    before = server.accounts()

    with pytest.raises(openai.BadRequestError):
        client.completions.create(model="simulated", prompt="x", max_tokens=0)

    after = server.accounts()
    invalid = [a["rejected_by_reason"].get("invalid_request", 0) for a in (before, after)]
    assert invalid[1] == invalid[0] + 1
    assert after["requests"] == before["requests"] + 1


def test_one_refused_prompt_of_several_refuses_all_and_leaves_nothing(server, client):
    with pytest.raises(openai.BadRequestError):
        client.completions.create(
            model="simulated", prompt=[[1], [2] * 1100], max_tokens=200, stream=True
        )

    wait_until(lambda: server.accounts()["running"] == 0, timeout=2)
    assert server.accounts()["active_blocks"] == 0
