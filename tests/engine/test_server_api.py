"""The API as the real OpenAI client sees it, over a simulated engine."""

import asyncio
from collections.abc import Iterator

import httpx
import openai
import pytest

from tests.engine.factories_server import RunningServer, running_server


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("server")
    arguments = ("--simulated", "--step-ms", "1", "--max-context", "256", "--num-blocks", "128")
    with running_server(folder, *arguments, "--tenant", "acme-eu=acme") as running:
        yield running


@pytest.fixture(scope="module")
def client(server) -> openai.OpenAI:
    with server.client(max_retries=0) as client:
        yield client


def test_the_model_is_listed(client):
    assert [model.id for model in client.models.list()] == ["simulated"]


def test_a_completion_has_its_tokens_counted(client):
    reply = client.completions.create(model="simulated", prompt=[5, 6, 7], max_tokens=4)

    assert reply.object == "text_completion"
    assert reply.choices[0].text == " block pool cache step"
    assert reply.choices[0].finish_reason == "length"
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (3, 4)
    assert reply.usage.total_tokens == 7
    assert reply._request_id == reply.id


def test_a_completion_that_names_no_length_gets_sixteen_tokens(client):
    reply = client.completions.create(model="simulated", prompt="one two")

    assert reply.usage.completion_tokens == 16


def test_a_chat_answers_with_an_assistants_message(client):
    messages = [{"role": "user", "content": "hello"}]

    reply = client.chat.completions.create(
        model="simulated", messages=messages, max_completion_tokens=2
    )

    assert reply.object == "chat.completion"
    assert reply.choices[0].message.role == "assistant"
    assert reply.choices[0].message.content == " block pool"
    assert reply.usage.completion_tokens == 2


def test_a_chat_that_names_no_length_may_fill_the_context(client):
    messages = [{"role": "user", "content": "hello"}]

    reply = client.chat.completions.create(model="simulated", messages=messages)

    assert reply.usage.total_tokens == 256


def test_a_streamed_completion_ends_with_usage_when_asked(client):
    stream = client.completions.create(
        model="simulated",
        prompt=[1, 2],
        max_tokens=3,
        stream=True,
        stream_options={"include_usage": True},
    )
    *pieces, last = list(stream)

    assert "".join(piece.choices[0].text for piece in pieces) == " block pool cache"
    assert [piece.choices[0].finish_reason for piece in pieces] == [None, None, "length"]
    assert last.choices == []
    assert last.usage.model_dump(exclude_none=True) == {
        "prompt_tokens": 2,
        "completion_tokens": 3,
        "total_tokens": 5,
    }


def test_a_streamed_chat_opens_with_the_role_and_sends_no_usage_unasked(client):
    stream = client.chat.completions.create(
        model="simulated",
        messages=[{"role": "user", "content": "hello"}],
        max_tokens=2,
        stream=True,
    )
    pieces = list(stream)

    assert [piece.choices[0].delta.role for piece in pieces] == ["assistant", None, None]
    assert "".join(piece.choices[0].delta.content or "" for piece in pieces) == " block pool"
    assert pieces[-1].choices[0].finish_reason == "length"
    assert all(piece.usage is None for piece in pieces)


def test_the_wire_form_of_a_stream_is_events_that_end_with_done(server):
    body = {"prompt": [1], "max_tokens": 1, "stream": True}

    answer = httpx.post(f"{server.url}/v1/completions", json=body)

    assert answer.headers["content-type"].startswith("text/event-stream")
    assert "content-length" not in answer.headers
    events = answer.text.split("\n\n")
    assert all(event.startswith("data: ") for event in events[:-1])
    assert events[-2:] == ["data: [DONE]", ""]


def test_several_prompts_give_choices_in_their_order(client):
    reply = client.completions.create(model="simulated", prompt=["a b", "c"], max_tokens=2)

    assert [choice.index for choice in reply.choices] == [0, 1]
    assert [choice.text for choice in reply.choices] == [" block pool", " block pool"]
    assert reply.usage.completion_tokens == 4


def test_a_stop_string_ends_the_text_and_the_sequence(server, client):
    before = server.accounts()["finished_by_reason"].get("stop", 0)

    reply = client.completions.create(
        model="simulated", prompt="x", max_tokens=500, stop=[" cache", "nothing"]
    )

    assert reply.choices[0].text == " block pool"
    assert reply.choices[0].finish_reason == "stop"
    accounts = server.accounts()
    assert accounts["finished_by_reason"]["stop"] == before + 1
    assert accounts["active_blocks"] == 0


def test_a_larger_max_tokens_is_cut_to_what_the_context_leaves(client):
    reply = client.completions.create(model="simulated", prompt=[9] * 232, max_tokens=5000)

    assert reply.usage.completion_tokens == 24


def test_the_async_client_gets_many_answers_at_once(server):
    async def ask() -> list[int]:
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none") as client:
            asks = [
                client.completions.create(model="simulated", prompt=[n], max_tokens=n)
                for n in range(1, 13)
            ]
            return [reply.usage.completion_tokens for reply in await asyncio.gather(*asks)]

    assert asyncio.run(ask()) == list(range(1, 13))


def test_two_answers_carry_the_numbers_of_their_sequences(server):
    body = {"prompt": [[1], [2]], "max_tokens": 1}

    answer = httpx.post(f"{server.url}/v1/completions", json=body)

    first, second = map(int, answer.headers["x-kvpulse-owner"].split(","))
    assert second == first + 1


def test_health_and_accounts_are_answered(server):
    assert httpx.get(f"{server.url}/health").json() == {"status": "ok"}
    accounts = server.accounts()
    blocks = [accounts[name] for name in ("active_blocks", "cached_blocks", "free_blocks")]
    assert sum(blocks) == accounts["total_blocks"] == 128


def test_a_foreign_host_gets_nothing(server):
    answer = httpx.get(f"{server.url}/v1/models", headers={"host": "evil.example"})

    assert answer.status_code == 403
    assert answer.json()["error"]["type"] == "PermissionDeniedError"


@pytest.mark.parametrize(("path", "status"), [("/v2", 404), ("/v1/completions", 405)])
def test_a_wrong_address_gets_an_error_of_the_same_form(server, path, status):
    answer = httpx.get(server.url + path)

    assert answer.status_code == answer.json()["error"]["code"] == status
