"""What the real OpenAI client does with our refusals, and what the journal has of its attempts."""

import asyncio
import contextlib
import time
from collections.abc import Callable
from types import SimpleNamespace

import openai
import pytest

from kvpulse.events import ArriveWord, Kind, RejectReason
from tests.engine.factories_server import Pending, RunningServer, running_server
from tests.engine.factories_server_journal import Recorded
from tests.waiting import wait_until

BUSY = ("--simulated", "--step-ms", "10", "--max-batch", "1", "--max-queue", "1")
LONG = {"prompt": [1], "max_tokens": 2000}


@pytest.fixture
def pauses(monkeypatch):
    """What the client would have waited for, and what happens meanwhile."""
    noted = SimpleNamespace(seconds=[], meanwhile=lambda: None)

    def sleep(seconds: float) -> None:
        noted.seconds.append(seconds)
        noted.meanwhile()

    clock = SimpleNamespace(sleep=sleep, time=time.time, monotonic=time.monotonic)
    monkeypatch.setattr("openai._base_client.time", clock)
    return noted


def _retries(folder) -> list[int]:
    """Return the number of the attempt of each arrival that the client under test sent."""
    words = Recorded(folder).words(Kind.ARRIVE)
    return [
        int(arrival[ArriveWord.RETRY]) for arrival in words if arrival[ArriveWord.PROMPT_TOKENS] > 1
    ]


@contextlib.contextmanager
def _full(server: RunningServer):
    """Keep one running and one waiting; give what empties the engine."""
    with Pending(server, LONG) as first:
        wait_until(lambda: server.state() == (1, 0))
        with Pending(server, LONG) as second:
            wait_until(lambda: server.state() == (1, 1))

            def empty() -> None:
                first.leave()
                second.leave()
                wait_until(server.is_idle)

            yield empty


@pytest.mark.parametrize("stream", [False, True])
def test_a_full_queue_is_tried_again_after_the_time_it_names(tmp_path, pauses, stream):
    with running_server(tmp_path, *BUSY) as server, _full(server) as empty:
        answers: list[Callable[[], None]] = [empty, lambda: None]
        pauses.meanwhile = lambda: answers.pop()()
        with server.client(max_retries=4) as client:
            reply = client.completions.create(
                model="simulated", prompt=[2, 2], max_tokens=2, stream=stream
            )
            if stream:
                assert len(list(reply)) == 2
            else:
                assert reply.usage.completion_tokens == 2
        rejected = server.accounts()["rejected_by_reason"]

    assert pauses.seconds == [1, 1]  # nothing has ended yet, so that no rate is known
    assert rejected == {"queue_full": 2}
    assert _retries(tmp_path) == [0, 1, 2]
    assert Recorded(tmp_path).field(Kind.REJECT, "aux") == [RejectReason.QUEUE_FULL] * 2


def test_who_never_gets_in_gives_up_with_the_last_refusal(tmp_path, pauses):
    with (
        running_server(tmp_path, *BUSY) as server,
        _full(server),
        server.client(max_retries=2) as client,
    ):
        with pytest.raises(openai.RateLimitError) as caught:
            client.completions.create(model="simulated", prompt=[2, 2])

        assert caught.value.body["type"] == "Too Many Requests"
        assert server.accounts()["rejected_by_reason"] == {"queue_full": 3}

    assert len(pauses.seconds) == 2
    assert _retries(tmp_path) == [0, 1, 2]


def test_a_server_that_shuts_down_is_tried_again(tmp_path, pauses):
    with running_server(tmp_path, *BUSY, "--drain-seconds", "3") as server:
        server.on_engine(server.served.engine.begin_drain)
        with (
            server.client(max_retries=1) as client,
            pytest.raises(openai.InternalServerError) as caught,
        ):
            client.completions.create(model="simulated", prompt=[2, 2])

    assert caught.value.status_code == 503
    assert pauses.seconds == [4]
    assert _retries(tmp_path) == [0, 1]


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        ({"prompt": [2] * 9000}, openai.BadRequestError),
        ({"prompt": [2] * 8000, "max_tokens": 190}, openai.BadRequestError),
        ({"prompt": [2, 2], "max_tokens": 0}, openai.BadRequestError),
        ({"prompt": [2, 2], "model": "nope"}, openai.NotFoundError),
    ],
)
def test_what_can_never_be_served_is_tried_once(tmp_path, pauses, asked, error):
    with (
        running_server(tmp_path, *BUSY, "--num-blocks", "64") as server,
        server.client(max_retries=5) as client,
    ):
        with pytest.raises(error):
            client.completions.create(**{"model": "simulated", **asked})

        assert sum(server.accounts()["rejected_by_reason"].values()) == 1
        assert server.accounts()["requests"] == 1

    assert pauses.seconds == []


@pytest.mark.parametrize(
    ("arguments", "headers", "status", "reason"),
    [
        (("--num-blocks", "24"), {"x-kvpulse-queue-timeout-ms": "250"}, 503, "pool_timeout"),
        (("--max-batch", "1"), {"x-kvpulse-queue-timeout-ms": "250"}, 504, "deadline"),
        (("--num-blocks", "24", "--high-watermark", "0.4"), {}, 503, "above_watermark"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_who_waited_in_vain_tries_again(
    tmp_path, pauses, arguments, headers, status, reason, stream
):
    busy = ("--simulated", "--step-ms", "40", "--block-size", "16", *arguments)
    hog = {"prompt": [1] * 200, "max_tokens": 180}
    with running_server(tmp_path, *busy) as server, Pending(server, hog):
        wait_until(lambda: server.state() == (1, 0))
        with (
            server.client(max_retries=1) as client,
            pytest.raises(openai.InternalServerError) as caught,
        ):
            client.completions.create(
                model="simulated",
                prompt=[2] * 300,
                max_tokens=1,
                stream=stream,
                extra_headers=headers,
            )

        assert caught.value.status_code == status
        assert caught.value.response.headers["x-kvpulse-reason"] == reason
        assert server.accounts()["rejected_by_reason"] == {reason: 2}

    assert len(pauses.seconds) == 1


def test_the_async_client_tries_again_too(tmp_path):
    async def ask(server: RunningServer, empty: Callable[[], None]) -> int:
        async with openai.AsyncOpenAI(
            base_url=f"{server.url}/v1", api_key="none", max_retries=9
        ) as client:
            asking = asyncio.ensure_future(
                client.completions.create(model="simulated", prompt=[2, 2], max_tokens=1)
            )
            await asyncio.to_thread(
                wait_until, lambda: server.accounts()["rejected_by_reason"].get("queue_full")
            )
            await asyncio.to_thread(empty)
            return (await asking).usage.completion_tokens

    with running_server(tmp_path, *BUSY) as server, _full(server) as empty:
        assert asyncio.run(ask(server, empty)) == 1

    retries = _retries(tmp_path)
    assert retries == list(range(len(retries)))
    assert len(retries) >= 2
