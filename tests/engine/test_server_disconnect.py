"""A client that leaves frees its blocks within a step, in whatever state its request is."""

import asyncio
import socket
import time
from collections.abc import Iterator

import httpx
import openai
import pytest

from tests.engine.factories_server import RunningServer, running_server
from tests.waiting import wait_until

STEP_SECONDS = 0.05


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("server")
    arguments = ("--simulated", "--step-ms", str(STEP_SECONDS * 1000), "--max-batch", "1")
    with running_server(folder, *arguments) as running:
        yield running


def _cancelled(server: RunningServer) -> int:
    return server.accounts()["cancelled"]


def _is_idle(server: RunningServer) -> bool:
    accounts = server.accounts()
    return accounts["running"] == accounts["waiting"] == accounts["active_blocks"] == 0


def test_leaving_a_stream_cancels_within_a_step(server):
    before = server.accounts()
    with server.client() as client:
        stream = client.completions.create(
            model="simulated", prompt=[1] * 40, max_tokens=5000, stream=True
        )
        next(iter(stream))
        assert server.accounts()["active_blocks"] >= 3

        stream.close()
    left = server.accounts()["steps"]

    wait_until(lambda: _is_idle(server))
    after = server.accounts()
    assert after["cancelled"] == before["cancelled"] + 1
    # The first answer was given between two steps, after at most one that was under way.
    assert after["steps"] - left <= 1


def test_leaving_before_the_answer_is_whole_cancels(server):
    before = _cancelled(server)

    with server.client(timeout=0.3, max_retries=0) as client, pytest.raises(openai.APITimeoutError):
        client.completions.create(model="simulated", prompt=[1] * 40, max_tokens=5000)

    wait_until(lambda: _is_idle(server))
    assert _cancelled(server) == before + 1


def test_leaving_the_queue_cancels_and_the_one_that_runs_goes_on(server):
    before = _cancelled(server)
    with server.client() as client:
        stream = client.completions.create(
            model="simulated", prompt=[1], max_tokens=20, stream=True
        )
        first = next(iter(stream))
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{server.url}/v1/completions", json={"prompt": [2]}, timeout=0.2)
        wait_until(lambda: server.accounts()["waiting"] == 0)

        assert _cancelled(server) == before + 1
        assert first.choices[0].text + "".join(p.choices[0].text for p in stream)
    wait_until(lambda: _is_idle(server))
    assert _cancelled(server) == before + 1


def test_the_async_client_can_give_up(server):
    before = _cancelled(server)

    async def ask() -> None:
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none") as client:
            asking = asyncio.ensure_future(
                client.chat.completions.create(
                    model="simulated", messages=[{"role": "user", "content": "hello"}]
                )
            )
            await asyncio.to_thread(wait_until, lambda: server.state() == (1, 0))
            asking.cancel()

    asyncio.run(ask())

    wait_until(lambda: _is_idle(server))
    assert _cancelled(server) == before + 1


def test_half_a_request_is_never_an_arrival(server):
    before = server.accounts()["requests"]
    host, port = server.url.removeprefix("http://").split(":")

    with socket.create_connection((host, int(port))) as connection:
        head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"
        connection.sendall(head.encode())
    time.sleep(2 * STEP_SECONDS)  # nothing is to happen, so there is nothing to wait for

    assert server.accounts()["requests"] == before


def test_an_idle_engine_takes_a_request_at_once(server):
    wait_until(lambda: _is_idle(server))
    took = []
    with httpx.Client(base_url=server.url) as client:
        for _ in range(3):
            started = time.monotonic()
            answer = client.post("/v1/completions", json={"prompt": [1], "max_tokens": 1})
            took.append(time.monotonic() - started)
            assert answer.status_code == 200

    # One step, and well below the quarter of a second at which an idle engine looks around.
    assert min(took) < STEP_SECONDS + 0.12
