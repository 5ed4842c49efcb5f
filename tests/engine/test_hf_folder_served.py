"""Models that are not Llama from a GGUF, over HTTP: a folder, and latent attention."""

import httpx
import pytest
import torch

from tests.engine.factories_hf import toy_config, toy_tensors, write_folder
from tests.engine.factories_server import running_server

ALTERNATING = """
{%- for message in messages %}
{%- if (message.role == 'user') != (loop.index0 % 2 == 0) %}
{{ raise_exception('roles must alternate') }}
{%- endif %}
{{ message.role }}: {{ message.content }}
{%- endfor %}
"""
LIMITS = ("--num-blocks", "24", "--max-context", "256", "--threads", "1")


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("folder")
    config = toy_config(architectures=["MistralForCausalLM"], sliding_window=24)
    model = write_folder(
        folder / "toy", config, toy_tensors(config), settings={"chat_template": ALTERNATING}
    )
    options = ("--model", str(model), "--kv-format", "int8", *LIMITS)
    with running_server(folder, *options) as running:
        yield running


def chat(server, *messages):
    body = {"model": "toy", "messages": list(messages), "max_tokens": 8, "temperature": 0}
    return httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=60)


def test_a_folder_is_served_under_its_name(server):
    answers = [
        server.post({"model": "toy", "prompt": "The harbour " * 12, "max_tokens": 40, "seed": 1})
        for _ in range(2)
    ]

    assert [one.status_code for one in answers] == [200, 200]
    assert answers[0].json()["usage"]["completion_tokens"] > 0
    assert answers[0].json()["choices"][0]["text"] == answers[1].json()["choices"][0]["text"]
    server.check()


def test_a_conversation_that_the_template_refuses_is_the_clients_fault(server):
    user, assistant = ({"role": role, "content": "hi"} for role in ("user", "assistant"))

    good, bad = chat(server, user), chat(server, user, user)

    assert good.status_code == 200
    assert bad.status_code == 400
    assert "roles must alternate" in bad.json()["error"]["message"]
    assert chat(server, user, assistant, user).status_code == 200


def test_latent_attention_is_served_in_every_step_of_a_request(tmp_path):
    options = ("--model", "random-mla", "--kv-format", "fp16", *LIMITS)
    with running_server(tmp_path, *options) as server:
        answer = server.post({"model": "random-mla", "prompt": "Where?", "max_tokens": 12})

        assert answer.status_code == 200
        assert answer.json()["usage"]["completion_tokens"] > 0
        server.check()
