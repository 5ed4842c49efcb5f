"""Several samples, the best of them, and beams, as the real OpenAI client gets them."""

from collections import Counter
from collections.abc import Iterator

import httpx
import openai
import pytest

from tests.engine.factories_server import RunningServer, running_server


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("server")
    limits = ("--num-blocks", "64", "--block-size", "4", "--max-context", "200", "--max-batch", "8")
    with running_server(folder, "--simulated", "--step-ms", "1", *limits) as running:
        yield running


@pytest.fixture(scope="module")
def client(server) -> openai.OpenAI:
    with server.client(max_retries=0) as client:
        yield client


@pytest.fixture(autouse=True)
def nothing_is_left(server) -> Iterator[None]:
    yield
    assert server.is_idle()
    server.check()


def test_n_samples_share_their_prompt_and_copy_what_they_write(server, client):
    before = Counter(server.accounts()["per_kind"])

    reply = client.completions.create(
        model="simulated", prompt=list(range(100, 110)), n=4, max_tokens=2
    )

    assert [choice.index for choice in reply.choices] == [0, 1, 2, 3]
    assert {choice.text for choice in reply.choices} == {" block pool"}
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (10, 8)
    acts = Counter(server.accounts()["per_kind"])
    acts.subtract(before)
    # Blocks of 4: three hold the prompt, three samples refer to each of them as well; then the
    # last block is written by all four, the last of whom writes in place.
    assert (acts["fork"], acts["share"], acts["copy_on_write"]) == (3, 9, 3)
    assert acts["allocate"] == 6
    assert acts["free"] == 15


def test_prompts_times_samples_are_numbered_prompt_by_prompt(client):
    reply = client.completions.create(model="simulated", prompt=[[1], [2, 2]], n=3, max_tokens=2)

    assert [choice.index for choice in reply.choices] == list(range(6))
    assert {choice.finish_reason for choice in reply.choices} == {"length"}
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (3, 12)


def test_a_stream_of_samples_names_each_pieces_choice(client):
    stream = client.completions.create(
        model="simulated",
        prompt=[[1], [2]],
        n=2,
        max_tokens=3,
        stream=True,
        stream_options={"include_usage": True},
    )
    *pieces, last = list(stream)

    texts, ends = Counter(), Counter()
    for piece in pieces:
        (choice,) = piece.choices
        texts[choice.index] += len(choice.text.split())
        ends[choice.index] += choice.finish_reason is not None
    assert texts == {0: 3, 1: 3, 2: 3, 3: 3}
    assert ends == {0: 1, 1: 1, 2: 1, 3: 1}
    assert last.usage.completion_tokens == 12


def test_a_streamed_chat_opens_every_choice_with_the_role(client):
    stream = client.chat.completions.create(
        model="simulated",
        messages=[{"role": "user", "content": "hello"}],
        n=3,
        max_tokens=2,
        stream=True,
    )
    pieces = [piece.choices[0] for piece in stream]

    assert [(p.index, p.delta.role) for p in pieces[:3]] == [(i, "assistant") for i in range(3)]
    assert Counter(p.index for p in pieces if p.finish_reason) == {0: 1, 1: 1, 2: 1}


def test_the_best_of_several_are_counted_whole_and_given_in_part(client):
    reply = client.completions.create(model="simulated", prompt=[1], n=2, best_of=5, max_tokens=3)

    assert [choice.index for choice in reply.choices] == [0, 1]
    assert reply.usage.completion_tokens == 15


def test_beams_give_the_n_best(client):
    reply = client.completions.create(
        model="simulated",
        prompt=[1, 2, 3, 4, 5],
        n=2,
        max_tokens=4,
        extra_body={"use_beam_search": True, "beam_width": 4, "length_penalty": 1.2},
    )

    assert [choice.index for choice in reply.choices] == [0, 1]
    assert [len(choice.text.split()) for choice in reply.choices] == [4, 4]
    assert reply.usage.completion_tokens == 8


def test_a_stop_string_ends_all_samples_that_say_it(server, client):
    before = server.accounts()["finished_by_reason"].get("stop", 0)

    reply = client.completions.create(
        model="simulated", prompt=[1], n=3, max_tokens=60, stop=" cache"
    )

    assert [choice.finish_reason for choice in reply.choices] == ["stop"] * 3
    assert server.accounts()["finished_by_reason"]["stop"] == before + 3


@pytest.mark.parametrize(
    ("asked", "part"),
    [
        ({"best_of": 3, "stream": True}, "best_of 3 of n 1 cannot stream"),
        ({"use_beam_search": True, "n": 2, "stream": True}, "Beam search cannot stream"),
        ({"n": 9}, "n must be at most 8"),
        ({"best_of": 9}, "best_of must be at most 8"),
        ({"use_beam_search": True, "beam_width": 9}, "beam_width must be at most 8"),
    ],
)
def test_what_cannot_be_sampled_is_refused_in_plain_words(server, asked, part):
    answer = httpx.post(f"{server.url}/v1/completions", json={"prompt": [1], **asked})

    assert answer.status_code == 400
    assert part in answer.json()["error"]["message"]
    assert answer.headers["x-kvpulse-reason"] == "invalid_request"


def test_a_chat_of_several_samples_that_names_no_length_gets_what_fits_for_all(client):
    messages = [{"role": "user", "content": "hello"}]

    reply = client.chat.completions.create(model="simulated", messages=messages, n=8)

    # 64 blocks of 4 tokens hold 8 tails beside the blocks that the prompt shares.
    used = reply.usage.completion_tokens
    assert used % 8 == 0
    assert 8 * 20 < used <= 64 * 4


def test_every_sequence_of_an_answer_is_named(server):
    answer = httpx.post(
        f"{server.url}/v1/completions", json={"prompt": [1], "n": 3, "max_tokens": 1}
    )

    owners = [int(number) for number in answer.headers["x-kvpulse-owner"].split(",")]
    assert len(set(owners)) == 3
    assert owners == sorted(owners)


def test_the_sharing_report_tells_what_a_shared_prompt_saved_and_cost(server, client):
    def report() -> dict[str, int]:
        return httpx.get(f"{server.url}/debug/sharing").json()

    prompt = [77] * 18
    client.completions.create(model="simulated", prompt=prompt, max_tokens=1)
    before = report()

    client.completions.create(model="simulated", prompt=prompt, n=2, max_tokens=2)

    after = report()
    assert after["tokens_not_recomputed"] - before["tokens_not_recomputed"] == 16
    assert after["tokens_queried"] - before["tokens_queried"] == 18
    assert after["blocks_copied"] - before["blocks_copied"] == 1
