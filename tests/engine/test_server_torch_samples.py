"""Samples, beams and swapping over HTTP with a torch model: the text is the model's, whatever."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest
import torch

from tests.engine.factories_server import RunningServer, running_server
from tests.waiting import wait_until

PROMPT = "Where does the harbour end?"
LIMITS = ("--num-blocks", "48", "--max-context", "512", "--max-batch", "6")


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("server")
    with running_server(folder, "--model", "random", *LIMITS) as running:
        yield running


@pytest.fixture(scope="module")
def client(server) -> openai.OpenAI:
    with server.client(max_retries=0) as client:
        yield client


def _texts(client: openai.OpenAI, **asked: object) -> list[str]:
    asked = {"model": "random", "prompt": PROMPT, "max_tokens": 24, "temperature": 0, **asked}
    return [choice.text for choice in client.completions.create(**asked).choices]


def test_greedy_samples_all_say_what_one_says(client):
    assert _texts(client, n=3) == _texts(client) * 3


def test_samples_differ_and_a_seed_repeats_them_all(client):
    drawn = [_texts(client, n=4, temperature=1, seed=seed) for seed in (7, 7, 8)]

    assert len(set(drawn[0])) == 4
    assert drawn[0] == drawn[1] != drawn[2]


def test_a_stream_of_samples_is_what_the_whole_answer_has(client):
    asked = {"n": 3, "temperature": 1, "seed": 5}
    stream = client.completions.create(
        model="random", prompt=PROMPT, max_tokens=24, stream=True, **asked
    )
    texts = ["", "", ""]
    for piece in stream:
        texts[piece.choices[0].index] += piece.choices[0].text

    assert texts == _texts(client, **asked)


def test_the_best_of_several_are_among_them(client):
    asked = {"temperature": 1, "seed": 11}
    every = _texts(client, n=5, **asked)

    best = _texts(client, n=2, best_of=5, **asked)

    assert len(set(best)) == 2
    assert set(best) < set(every)


def test_a_stop_string_ends_its_own_sample_only(server, client):
    asked = {"n": 3, "temperature": 1, "seed": 3, "extra_body": {"ignore_eos": True}}
    first, *others = _texts(client, **asked)
    stop = next(c for c in first if not any(c in text for text in others))
    before = server.accounts()["finished_by_reason"].get("stop", 0)

    cut, *rest = _texts(client, stop=stop, **asked)

    assert cut == first[: first.index(stop)]
    assert rest == others
    assert server.accounts()["finished_by_reason"]["stop"] == before + 1
    assert server.is_idle()
    server.check()


def test_a_beam_search_repeats_itself_and_one_beam_is_greedy(client):
    beams = {"use_beam_search": True}
    wide = [_texts(client, n=2, extra_body={**beams, "beam_width": 4}) for _ in range(2)]

    assert wide[0] == wide[1]
    assert len(set(wide[0])) == 2
    assert _texts(client, extra_body=beams) == _texts(client)


def test_what_was_swapped_out_goes_on_as_if_it_had_not_been(tmp_path, server, client):
    prompts = [f"{n}: " + "harbour " * 6 for n in range(5)]
    quiet = [_texts(client, prompt=prompt, max_tokens=90) for prompt in prompts]
    few = ("--num-blocks", "24", "--host-blocks", "64", "--preemption", "swap")
    with (
        running_server(tmp_path, "--model", "random", *LIMITS, *few) as pressed,
        pressed.client(max_retries=0) as other,
        ThreadPoolExecutor(5) as pool,
    ):
        texts = list(pool.map(lambda p: _texts(other, prompt=p, max_tokens=90), prompts))
        acts = pressed.accounts()["per_kind"]
        wait_until(pressed.is_idle)
        pressed.check()

    assert acts["swap_out"] >= acts["swap_in"] > 0  # what the pool had kept needs no copy
    assert texts == quiet
