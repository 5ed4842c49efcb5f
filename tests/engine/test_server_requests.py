"""What the API's bodies may hold, and what is said about one that cannot be served."""

import json

import pytest

from engine.server.openai_errors import ApiError, UnknownModelError, refusal
from engine.server.openai_requests import parse_chat, parse_completion
from kvpulse.events import REJECT_RULES, RejectReason


def test_a_prompt_may_be_text_ids_or_an_array_of_either():
    assert parse_completion({"prompt": "hi"}).prompts == ("hi",)
    assert parse_completion({"prompt": [1, 2]}).prompts == ((1, 2),)
    assert parse_completion({"prompt": ["a", "b"]}).prompts == ("a", "b")
    assert parse_completion({"prompt": [[1], [2, 3]]}).prompts == ((1,), (2, 3))


def test_the_newer_name_of_max_tokens_wins_in_a_chat():
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 5}

    assert parse_chat(body).max_tokens == 5
    assert parse_chat({**body, "max_completion_tokens": 7}).max_tokens == 7


def test_text_parts_of_a_message_are_joined():
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]

    ask = parse_chat({"messages": [{"role": "user", "content": parts}]})

    assert ask.messages == ({"role": "user", "content": "ab"},)


def test_null_is_the_same_as_absent():
    ask = parse_completion({"prompt": "x", "max_tokens": None, "stop": None, "n": None})

    assert (ask.max_tokens, ask.stop, ask.temperature) == (None, (), 1.0)


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"prompt": None}, None),
        ({"prompt": {}}, "prompt"),
        ({"prompt": [1, True]}, "prompt"),
        ({"prompt": [-1]}, "prompt"),
        ({"prompt": ["a", 1]}, "prompt"),
        ({"prompt": [[]]}, "prompt"),
        ({"prompt": ["x"] * 65}, "prompt"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": "ten"}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"temperature": 10**400}, "temperature"),
        ({"temperature": -(10**400)}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_p": 1.5}, "top_p"),
        ({"seed": 1 << 70}, "seed"),
        ({"seed": 1.5}, "seed"),
        ({"n": 2}, "n"),
        ({"n": 0}, "n"),
        ({"best_of": 3}, "best_of"),
        ({"stop": [""]}, "stop"),
        ({"stop": 3}, "stop"),
        ({"stream": "yes"}, "stream"),
        ({"stream_options": []}, "stream_options"),
        ({"echo": True}, "echo"),
        ({"logprobs": 1}, "logprobs"),
        ({"user": 7}, "user"),
        ({"model": 7}, "model"),
    ],
)
def test_a_field_that_cannot_be_served_is_named(change, param):
    with pytest.raises(ApiError) as caught:
        parse_completion({"prompt": "x", **change})

    body = caught.value.body()["error"]
    assert (body["code"], body["type"], body["param"]) == (400, "BadRequestError", param)
    assert caught.value.headers["x-should-retry"] == "false"


@pytest.mark.parametrize(
    "messages", [None, [], "hi", [1], [{"content": "x"}], [{"role": "user", "content": [{}]}]]
)
def test_messages_that_are_no_conversation_are_refused(messages):
    with pytest.raises(ApiError) as caught:
        parse_chat({"messages": messages})

    assert caught.value.param == "messages"


def test_an_error_never_repeats_what_the_client_wrote():
    secret = "the planted words"
    bodies = [{"prompt": {"a": secret}}, {"prompt": "x", "stop": {secret: 1}}]

    for body in bodies:
        with pytest.raises(ApiError) as caught:
            parse_completion(body)
        assert secret not in str(caught.value.body())


def test_a_model_name_that_is_no_text_is_told_back_as_what_can_be_sent():
    error = UnknownModelError("half \ud800 " + "x" * 9000, served=("simulated",))

    told = json.dumps(error.body(), ensure_ascii=False).encode()
    assert b"half \\\\ud800 xxx" in told
    assert len(told) < 500


@pytest.mark.parametrize("reason", RejectReason)
def test_every_refusal_has_its_status_and_says_whether_to_retry(reason):
    error = refusal(reason, needed=2, limit=1)

    rule = REJECT_RULES[reason]
    assert error.status == error.body()["error"]["code"] == rule.http_status
    assert error.headers["x-should-retry"] == ("true" if rule.retryable else "false")
    assert ("retry-after" in error.headers) == rule.retryable
    assert error.headers["x-kvpulse-reason"] == reason.name.lower()
