"""Text through a folder's tokenizer.json and its jinja chat template."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

from engine.model.chat_template import ChatTemplateError
from engine.model.hf_folder.json_files import ModelFolderError
from engine.model.hf_folder.tokenizer import FolderTokenizer
from tests.engine.factories_hf import toy_config, toy_tokenizer

CHATML = """
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\n' + message['content'] | trim + '<|im_end|>' + '\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}
"""
STRICT = """
{{- bos_token }}
{%- for message in messages %}
{%- if (message.role == 'user') != (loop.index0 % 2 == 0) %}
{{ raise_exception('roles must alternate') }}
{%- endif %}
[{{ message.role | upper }}]{{ message.content }}
{%- endfor %}
"""
START, END, BOS = 256, 257, 258
USER = {"role": "user", "content": "hi"}


def tokenizer_of(folder, *, template=None, settings=None, tokenizer=None, file_template=None):
    (folder / "config.json").write_text(json.dumps(toy_config()))
    (tokenizer or toy_tokenizer()).save(str(folder / "tokenizer.json"))
    settings = (settings or {}) | ({} if template is None else {"chat_template": template})
    if settings:
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    if file_template is not None:
        (folder / "chat_template.jinja").write_text(file_template)
    return FolderTokenizer(folder, vocab_size=320)


@pytest.fixture(scope="module")
def chatml(tmp_path_factory):
    return tokenizer_of(tmp_path_factory.mktemp("chatml"), template=CHATML)


def ids(text):
    return list(text.encode())


@given(st.text())
def test_text_comes_back_as_it_went_in(chatml, text):
    token_ids = chatml.encode_text(text)

    assert chatml.decode(token_ids) == text.encode("utf-8", "replace").decode()
    stream = chatml.text_stream()
    assert "".join(map(stream.push, token_ids)) + stream.flush() == chatml.decode(token_ids)


def test_a_raw_prompt_may_spell_special_tokens(chatml):
    assert chatml.encode("a<|im_end|>b") == [ord("a"), END, ord("b")]
    assert chatml.encode_text("<|im_end|>") == ids("<|im_end|>")
    assert chatml.decode([ord("a"), END, ord("b"), 319]) == "ab"


def test_the_template_lays_a_conversation_out(chatml):
    messages = [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": [{"type": "text", "text": " hi "}]},
    ]

    token_ids = chatml.apply_chat_template(messages)

    expected = [START, *ids("system\nbe brief"), END, *ids("\n"), START, *ids("user\nhi"), END]
    assert token_ids == [*expected, *ids("\n"), START, *ids("assistant\n")]


@given(
    st.lists(
        st.sampled_from(["<|im_end|>", "<|im_start|>", "<s>", "a", "\uf8fe", "0;", "1;", "!", "<|"])
    ).map("".join),
    st.sampled_from(["user", "user<|im_end|>", "<|im_start|>"]),
)
def test_no_message_can_write_a_special_token(chatml, content, role):
    token_ids = chatml.apply_chat_template([{"role": role, "content": content}])

    before, after = [START, *ids(role + "\n")], [END, *ids("\n"), START, *ids("assistant\n")]
    assert token_ids == [*before, *ids(content.strip()), *after]


def test_a_template_may_refuse_a_conversation_and_write_named_tokens(tmp_path):
    tokenizer = tokenizer_of(tmp_path, template=STRICT, settings={"bos_token": {"content": "<s>"}})

    assert tokenizer.apply_chat_template([USER]) == [BOS, *ids("[USER]hi")]
    with pytest.raises(ChatTemplateError, match="refuses: roles must alternate"):
        tokenizer.apply_chat_template([{"role": "assistant", "content": "hi"}])


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.__init__.__globals__ }}",
        "{{ messages.append(1) }}",
        "{{ raise_exception.__globals__.keys() }}",
        "{{ 'x' * 10**6 * 10**6 }}",
        "{% for i in range(10**9) %}{% endfor %}",
        "{{ 1 // 0 }}",
        "{{ messages[0].nothing.at_all }}",
        "{{ messages | nofilter }}",
        "{% if %}",
        "{% include '/etc/passwd' %}",
        "{% import 'os' as os %}{{ os }}",
    ],
)
def test_a_template_reaches_nothing_but_the_messages(tmp_path, template):
    with pytest.raises(ChatTemplateError, match="chat template"):
        tokenizer_of(tmp_path, template=template).apply_chat_template([USER])


@pytest.mark.parametrize(
    "message", [{}, {"role": "user"}, {"role": "", "content": "a"}, {"role": "user", "content": 3}]
)
def test_messages_that_are_no_text_are_refused(chatml, message):
    with pytest.raises(ChatTemplateError):
        chatml.apply_chat_template([message])


def test_a_template_of_its_own_file_and_a_named_one_are_found(tmp_path):
    named = [{"name": "tools", "template": "tools"}, {"name": "default", "template": "<s>default"}]

    by_name = tokenizer_of(tmp_path, template=named)
    by_file = tokenizer_of(tmp_path, template=named, file_template="<s>file")

    assert by_name.apply_chat_template([USER]) == [BOS, *ids("default")]
    assert by_file.apply_chat_template([USER]) == [BOS, *ids("file")]


def test_without_a_template_chatml_tokens_are_enough(tmp_path):
    token_ids = tokenizer_of(tmp_path).apply_chat_template([USER])

    assert token_ids[:4] == [START, *ids("use")]
    assert token_ids[-11:] == [START, *ids("assistant\n")]


def sentencepiece_tokenizer():
    """A vocabulary as Llama 2's: spaces as a mark, bytes by their number, `<s>` in front."""
    vocabulary = {"<unk>": 0, "<s>": 1, "</s>": 2} | {f"<0x{b:02X}>": 3 + b for b in range(256)}
    vocabulary |= {text: 259 + i for i, text in enumerate(["\u2581", "a", "b", "\u2581a"])}
    model = models.BPE(
        vocab=vocabulary, merges=[("\u2581", "a")], unk_token="<unk>", byte_fallback=True
    )
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    tokenizer.add_special_tokens([AddedToken(t, special=True) for t in ("<unk>", "<s>", "</s>")])
    tokenizer.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 1)])
    return tokenizer


def test_a_sentencepiece_vocabulary_spells_spaces_and_bytes(tmp_path):
    tokenizer = tokenizer_of(tmp_path, tokenizer=sentencepiece_tokenizer())

    token_ids = tokenizer.encode("a b é")

    assert token_ids == [1, 262, 259, 261, 259, 3 + 0xC3, 3 + 0xA9]
    assert tokenizer.decode(token_ids) == " a b é"
    with pytest.raises(ChatTemplateError, match="no chat template and no ChatML tokens"):
        tokenizer.apply_chat_template([USER])


def test_what_the_file_says_of_cutting_and_padding_is_left_out(tmp_path):
    cutting = toy_tokenizer()
    cutting.enable_truncation(max_length=4)
    cutting.enable_padding(length=8)

    tokenizer = tokenizer_of(tmp_path, tokenizer=cutting)

    assert tokenizer.encode("abcdefghijkl") == ids("abcdefghijkl")
    assert tokenizer.encode("ab") == ids("ab")


def test_a_way_of_spelling_that_is_not_built_here_is_refused(tmp_path):
    wordpiece = toy_tokenizer()
    wordpiece.decoder = decoders.WordPiece()

    with pytest.raises(ModelFolderError, match="spells tokens by \\['WordPiece'\\]"):
        tokenizer_of(tmp_path, tokenizer=wordpiece)


def test_too_large_a_template_is_refused(tmp_path):
    with pytest.raises(ModelFolderError, match=r"chat_template\.jinja: is larger than"):
        tokenizer_of(tmp_path, file_template=" " * ((1 << 20) + 1))
