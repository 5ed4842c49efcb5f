"""What the API's bodies may hold, and what is said about one that cannot be served."""

import json

import pytest

from engine.admission import Rejection
from engine.server.openai_errors import ApiError, UnknownModelError
from engine.server.openai_requests import parse_chat, parse_completion
from engine.server.refusals import refusal
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
        ({"n": 0}, "n"),
        ({"n": 1 << 30}, "n"),
        ({"n": 3, "best_of": 2}, "best_of"),
        ({"best_of": 2, "stream": True}, "stream"),
        ({"use_beam_search": True, "stream": True}, "stream"),
        ({"use_beam_search": 1}, "use_beam_search"),
        ({"beam_width": 4}, "beam_width"),
        ({"n": 3, "use_beam_search": True, "beam_width": 2}, "beam_width"),
        ({"length_penalty": "long"}, "length_penalty"),
        ({"early_stopping": "never"}, "early_stopping"),
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
    error = refusal(Rejection(reason, 2, 1, "as it was asked"), retry_after_seconds=7, owner=12)

    rule = REJECT_RULES[reason]
    assert error.status == error.body()["error"]["code"] == rule.http_status
    assert error.headers["x-should-retry"] == ("true" if rule.retryable else "false")
    assert error.headers.get("retry-after") == ("7" if rule.retryable else None)
    assert error.headers["x-kvpulse-reason"] == reason.name.lower()
    assert error.headers["x-kvpulse-owner"] == "12"
    assert len(error.message) > 30


def test_samples_and_beams_are_read_under_the_names_that_openai_and_vllm_use():
    sampled = parse_completion({"prompt": "x", "n": 2, "best_of": 4}).samples
    beams = {"use_beam_search": True, "length_penalty": 0.5, "early_stopping": True}
    searched = parse_completion({"prompt": "x", "n": 2, **beams}).samples
    wider = parse_completion({"prompt": "x", "n": 2, "beam_width": 6, **beams}).samples

    assert (sampled.n, sampled.best_of, sampled.beam_width) == (2, 4, 0)
    assert (sampled.num_sequences, sampled.num_answers) == (4, 4)
    assert (searched.n, searched.beam_width) == (2, 2)
    assert (searched.length_penalty, searched.early_stopping) == (0.5, True)
    assert (wider.num_sequences, wider.num_answers) == (6, 2)


def test_a_chat_takes_n_and_refuses_a_best_of():
    messages = [{"role": "user", "content": "hi"}]

    assert parse_chat({"messages": messages, "n": 3, "stream": True}).samples.num_answers == 3
    with pytest.raises(ApiError) as caught:
        parse_chat({"messages": messages, "best_of": 3})
    assert caught.value.param == "best_of"
