"""Text to tokens and back, with a small vocabulary built here and with SmolLM2's."""

import logging

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.model.chat_template import DEFAULT_SYSTEM, ChatTemplateError
from engine.model.gguf_file import GgufError, GgufFile
from engine.model.random_model import ByteTokenizer
from engine.model.text_stream import TextStream
from engine.model.tokenizer import GgufTokenizer
from tests.engine.factories_gguf import ARRAY, INT32, STRING, UINT32, gguf_bytes
from tests.engine.factories_model import smollm2_path, smollm2_tokenizer

TEXTS = [
    "",
    "Hello, world!",
    "  two  spaces\tand a tab\nand a line",
    "1234567890",
    "naïve café Ångström",
    "東京は日本の首都です。",
    "👩‍👩‍👧‍👦 a family, 🏳️‍🌈 a flag",
    "def f(x):\n    return x ** 2\n",
    "\x00\x7f\u200b\ufffd",
]


def small_file(tmp_path, *, split="smollm", kinds=None, merges=("a b", "ab c")):
    """A vocabulary of two special tokens, all bytes as GPT-2 spells them, and two merges."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    spelled = [chr(byte) for byte in printable] + [chr(0x100 + i) for i in range(len(others))]
    tokens = ["<|im_start|>", "<|im_end|>", *spelled, "ab", "abc"]
    kinds = [3, 3] + [1] * (len(tokens) - 2) if kinds is None else kinds
    path = tmp_path / "small.gguf"
    path.write_bytes(
        gguf_bytes(
            [
                ("tokenizer.ggml.model", STRING, "gpt2"),
                ("tokenizer.ggml.pre", STRING, split),
                ("tokenizer.ggml.tokens", ARRAY, (STRING, tokens)),
                ("tokenizer.ggml.token_type", ARRAY, (INT32, kinds)),
                ("tokenizer.ggml.merges", ARRAY, (STRING, list(merges))),
                ("tokenizer.ggml.eos_token_id", UINT32, 1),
            ]
        )
    )
    return GgufFile(path)


@pytest.fixture
def small(tmp_path):
    with small_file(tmp_path) as file:
        return GgufTokenizer(file)


def streamed(tokenizer, token_ids):
    """The pieces that a stream gives for these tokens, flush included."""
    stream = tokenizer.text_stream()
    return [stream.push(token_id) for token_id in token_ids] + [stream.flush()]


def test_merges_are_applied_in_order(small):
    assert [small.decode([token]) for token in small.encode("abcab")] == ["abc", "ab"]


@pytest.mark.parametrize("text", TEXTS)
def test_every_text_comes_back(small, text):
    assert small.decode(small.encode(text)) == text


def test_digits_stand_alone(small):
    assert len(small.encode("2026")) == 4


def test_a_special_token_in_a_raw_prompt_is_that_token(small):
    assert small.encode("ab<|im_end|>ab") == [small.encode("ab")[0], 1, small.encode("ab")[0]]


def test_a_special_token_spelled_inside_a_chat_stays_text(small):
    token_ids = small.apply_chat_template([{"role": "user", "content": "x<|im_end|>y"}])

    # The system's and the user's own turns end; the spelled mark ends nothing.
    assert token_ids.count(1) == 2
    assert "x<|im_end|>y" in small.decode(token_ids)


def test_special_tokens_have_no_text(small):
    assert small.decode([0, *small.encode("ab"), 1]) == "ab"
    assert streamed(small, [0, *small.encode("ab"), 1, 99_999]) == ["", "ab", "", "", ""]


def test_a_lone_surrogate_is_replaced_and_not_an_error(small):
    assert small.decode(small.encode("a\ud800b")) == "a?b"


@pytest.mark.parametrize("text", ["東京", "👩‍👩‍👧‍👦", "né", "a🏳️‍🌈b"])
def test_a_stream_never_gives_half_a_character(small, text):
    token_ids = small.encode(text)

    pieces = streamed(small, token_ids)

    assert len(token_ids) > len(text)
    assert not any("\ufffd" in piece for piece in pieces)
    assert "".join(pieces) == text


def test_a_character_cut_off_at_the_end_is_shown_as_broken_once(small):
    token_ids = small.encode("a東")[:-1]

    pieces = streamed(small, token_ids)

    assert pieces == ["a", "", "", "\ufffd"]
    assert small.decode(token_ids) == "a\ufffd"


@given(st.lists(st.binary(max_size=4), max_size=12))
@example([b"\xf0\x9f", b"\x91", b"\xa9"])
@example([b"\xff", b"a", b"\xe6\x9d"])
def test_a_stream_gives_what_decoding_all_at_once_gives(pieces):
    stream = TextStream(lambda token_id: pieces[token_id])

    text = "".join(stream.push(token_id) for token_id in range(len(pieces))) + stream.flush()

    assert text == b"".join(pieces).decode("utf-8", "replace")


def test_a_chat_without_a_system_message_gets_the_models_own(small):
    own = small.decode(small.apply_chat_template([{"role": "user", "content": "hi"}]))
    given_one = small.decode(
        small.apply_chat_template(
            [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}]
        )
    )

    assert own == f"system\n{DEFAULT_SYSTEM}\nuser\nhi\nassistant\n"
    assert given_one == "system\nbe brief\nuser\nhi\nassistant\n"


def test_text_parts_are_joined(small):
    parts = [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]

    token_ids = small.apply_chat_template([{"role": "user", "content": parts}])

    assert "one two" in small.decode(token_ids)


@pytest.mark.parametrize(
    "message",
    [
        {"content": "no role"},
        {"role": "user"},
        {"role": "user", "content": 7},
        {"role": "", "content": "empty role"},
        {"role": "user", "content": [{"type": "image_url", "image_url": {}}]},
        {"role": "user", "content": [{"type": "text", "text": 3}]},
    ],
)
def test_a_message_that_is_no_message_is_refused(small, message):
    with pytest.raises(ChatTemplateError):
        small.apply_chat_template([message])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"split": "llama-bpe"}, "gpt2/llama-bpe"),
        ({"kinds": [1, 2]}, "type for each token"),
        ({"merges": ["ab"]}, "no pair"),
    ],
)
def test_other_kinds_of_vocabulary_are_refused(tmp_path, change, reason):
    with small_file(tmp_path, **change) as file, pytest.raises(GgufError, match=reason):
        GgufTokenizer(file)


def test_nothing_of_a_text_is_logged(small, caplog):
    with caplog.at_level(logging.DEBUG):
        small.encode("a-planted-word")
        small.apply_chat_template([{"role": "user", "content": "a-planted-word"}])

    assert "planted" not in caplog.text


@given(st.text())
def test_the_byte_tokenizer_gives_every_text_back(text):
    tokenizer = ByteTokenizer()

    token_ids = tokenizer.encode(text)

    assert tokenizer.decode(token_ids) == text.encode("utf-8", "replace").decode()
    assert all(0 <= token_id < 256 for token_id in token_ids)


def test_the_byte_tokenizer_marks_turns_and_shows_unused_ids_as_ascii():
    tokenizer = ByteTokenizer()

    token_ids = tokenizer.apply_chat_template([{"role": "user", "content": "hi"}])

    assert (token_ids.count(257), token_ids.count(256)) == (3, 2)
    assert tokenizer.decode(token_ids).endswith("user\nhi\nassistant\n")
    assert all(tokenizer.decode([token_id]).isascii() for token_id in range(258, 512))


@pytest.mark.model
@pytest.mark.parametrize("text", TEXTS)
def test_smollm2_gives_every_text_back(text):
    tokenizer = smollm2_tokenizer()

    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert "".join(streamed(tokenizer, tokenizer.encode(text))) == text


@pytest.mark.model
def test_smollm2_chats_are_laid_out_as_its_own_template_says():
    jinja2 = pytest.importorskip("jinja2", reason="no jinja2: make setup installs it")
    with GgufFile(smollm2_path()) as file:
        template = jinja2.Template(file.metadata["tokenizer.chat_template"])
    tokenizer = smollm2_tokenizer()

    for messages in [
        [{"role": "user", "content": "What is the capital of France?"}],
        [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi 東京"}],
        [
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": "Hello!"},
            {"role": "user", "content": "\n\n 12 "},
        ],
    ]:
        rendered = template.render(messages=messages, add_generation_prompt=True)
        assert tokenizer.apply_chat_template(messages) == tokenizer.encode(rendered)


@pytest.mark.model
def test_smollm2_splits_text_as_published():
    tokenizer = smollm2_tokenizer()

    token_ids = tokenizer.encode("The capital of France is 42")

    pieces = [tokenizer.decode([token_id]) for token_id in token_ids]
    assert pieces == ["The", " capital", " of", " France", " is", " ", "4", "2"]
    assert tokenizer.eos_token_ids == (2,)
    assert tokenizer.vocab_size == 49_152
    assert np.all(np.array(token_ids) > 16)
