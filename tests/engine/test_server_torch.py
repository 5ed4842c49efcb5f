"""The API over torch: a seeded random model in every run, SmolLM2 where its weights are."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import openai
import pytest
import torch

from engine.model.model_files import ModelNotFoundError, find_model
from tests.engine.factories_server import RunningServer, running_server
from tests.waiting import wait_until

PROMPT = "Where does the harbour end?"


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("server")
    limits = ("--num-blocks", "24", "--max-context", "512", "--max-batch", "4")
    with running_server(folder, "--model", "random", *limits) as running:
        yield running


@pytest.fixture(scope="module")
def client(server) -> openai.OpenAI:
    with server.client(max_retries=0) as client:
        yield client


def _text(client: openai.OpenAI, **asked: object) -> str:
    asked = {"model": "random", "prompt": PROMPT, "max_tokens": 24, "temperature": 0, **asked}
    return client.completions.create(**asked).choices[0].text


def test_a_stream_gives_the_text_that_the_whole_answer_has(client):
    stream = client.completions.create(
        model="random", prompt=PROMPT, max_tokens=24, temperature=0, stream=True
    )

    assert "".join(piece.choices[0].text for piece in stream) == _text(client)


def test_text_and_its_token_ids_are_the_same_prompt(client):
    assert _text(client, prompt=list(PROMPT.encode())) == _text(client)


def test_a_seed_repeats_what_was_drawn(client):
    drawn = [_text(client, temperature=1, seed=seed) for seed in (7, 7, 8)]

    assert drawn[0] == drawn[1] != drawn[2]


def test_answers_under_pressure_are_those_of_a_quiet_engine(server, client):
    prompts = [f"{n}: " + "harbour " * 6 for n in range(5)]
    quiet = [_text(client, prompt=prompt, max_tokens=90) for prompt in prompts]
    before = server.accounts()["preemptions"]

    with ThreadPoolExecutor(5) as pool:
        pressed = list(pool.map(lambda p: _text(client, prompt=p, max_tokens=90), prompts))

    assert server.accounts()["preemptions"] > before
    assert pressed == quiet


def test_a_token_outside_the_vocabulary_is_refused(client):
    with pytest.raises(openai.BadRequestError, match="Token id 512 is out of vocabulary"):
        client.completions.create(model="random", prompt=[512])


def test_leaving_frees_the_blocks_of_a_real_model(server, client):
    stream = client.chat.completions.create(
        model="random", messages=[{"role": "user", "content": "go on"}], stream=True
    )
    next(iter(stream))
    stream.close()

    wait_until(lambda: server.accounts()["active_blocks"] == 0)


@pytest.mark.model
def test_smollm2_knows_a_capital_and_answers_a_chat(tmp_path):
    try:
        find_model()
    except ModelNotFoundError as error:
        pytest.skip(str(error))
    with running_server(tmp_path, "--num-blocks", "64") as server, server.client() as client:
        ask = client.completions.create
        capital = ask(
            model="smollm2", prompt="The capital of France is", max_tokens=1, temperature=0
        )
        chat = client.chat.completions.create(
            model="smollm2",
            messages=[{"role": "user", "content": "What is 2 plus 2? Answer with one number."}],
            max_tokens=24,
            temperature=0,
        )

        assert capital.choices[0].text == " Paris"
        assert "4" in chat.choices[0].message.content
        assert chat.choices[0].finish_reason in ("stop", "length")
        assert "<|im_end|>" not in chat.choices[0].message.content


@pytest.mark.parametrize(
    "odd",
    [
        {"temperature": 5e-324},
        {"temperature": 1, "top_p": 5e-324},
        {"temperature": 1, "top_k": 10**30},
        {"temperature": 1, "seed": -(2**63)},
        {"max_tokens": 10**30},
        {"prompt": "\x00"},
        {"prompt": "\ud800"},
        {"prompt": "x" * 100_000},
        {"user": "\ud800" * 1000},
        {"n": 4, "best_of": 4, "temperature": 2, "seed": -(2**63)},
        {"n": 4, "use_beam_search": True, "length_penalty": -10},
        {"use_beam_search": True, "beam_width": 4, "length_penalty": 10, "early_stopping": True},
        {"use_beam_search": True, "max_tokens": 1, "stop": "e"},
        {"priority": -(2**31), "service_tier": "flex"},
    ],
    ids=lambda odd: ",".join(odd),
)
def test_no_request_can_end_the_engine(server, odd):
    body = {"prompt": PROMPT, "max_tokens": 2, **odd}

    answer = httpx.post(f"{server.url}/v1/completions", content=json.dumps(body))

    assert answer.status_code in (200, 400)
    assert httpx.get(f"{server.url}/health").status_code == 200
