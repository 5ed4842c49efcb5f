"""Text to token ids and back, from the vocabulary that a GGUF file carries.

Byte-level BPE as in GPT-2, with single digits (the `smollm` split). Nothing logs or keeps text.
"""

import re
from collections.abc import Sequence
from typing import Final, Protocol

import numpy as np
from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as BpeEncoder

from engine.model.chat_template import TemplateMessage, render_chat
from engine.model.gguf_file import GgufError, GgufFile
from engine.model.text_stream import TextStream

CONTROL_TOKEN: Final = 3


class Tokenizer(Protocol):
    """What the server needs of any tokenizer."""

    @property
    def vocab_size(self) -> int:
        """Number of token ids."""
        ...

    @property
    def eos_token_ids(self) -> tuple[int, ...]:
        """Ids that end a sequence."""
        ...

    def encode(self, text: str) -> list[int]:
        """Return the ids of a prompt."""
        ...

    def decode(self, token_ids: list[int]) -> str:
        """Return the text of generated ids."""
        ...

    def apply_chat_template(self, messages: list[TemplateMessage]) -> list[int]:
        """Return the ids of a conversation."""
        ...

    def text_stream(self) -> TextStream:
        """Return a fresh reader of generated tokens."""
        ...


class GgufTokenizer:
    """The byte-level BPE tokenizer of a GGUF file."""

    def __init__(self, file: GgufFile) -> None:
        """Build the tokenizer; it keeps nothing of the file open.

        Raises:
            GgufError: The file has no byte-level BPE vocabulary of the `smollm` kind.
        """
        tokens = _strings(file, "tokenizer.ggml.tokens")
        kinds = file.metadata.get("tokenizer.ggml.token_type")
        if not isinstance(kinds, np.ndarray) or len(kinds) != len(tokens):
            raise GgufError(file.path, "has no type for each token")
        model, split = (file.metadata.get(f"tokenizer.ggml.{key}") for key in ("model", "pre"))
        if (model, split) != ("gpt2", "smollm"):
            raise GgufError(file.path, f"splits text as {model}/{split}; known is gpt2/smollm")
        merges = [_pair(file, merge) for merge in _strings(file, "tokenizer.ggml.merges")]
        vocabulary = {token: index for index, token in enumerate(tokens)}
        special = {tokens[index]: int(index) for index in np.flatnonzero(kinds == CONTROL_TOKEN)}
        self.vocab_size = len(tokens)
        self.eos_token_ids = _end_tokens(file)
        self._special = special
        self._encoder = _byte_level_bpe(vocabulary, merges, list(special))
        self._bytes = _bytes_of_tokens(tokens, set(special.values()))
        self._special_pattern = re.compile("|".join(map(re.escape, special)) or r"(?!)")

    def encode(self, text: str) -> list[int]:
        """Return a prompt's ids; special tokens spelled out in it are those tokens.

        The writer of a raw prompt owns all of it. Text inside a chat goes through `encode_text`.
        """
        token_ids: list[int] = []
        end = 0
        for match in self._special_pattern.finditer(text):
            token_ids += self.encode_text(text[end : match.start()])
            token_ids.append(self._special[match.group()])
            end = match.end()
        return token_ids + self.encode_text(text[end:])

    def encode_text(self, text: str) -> list[int]:
        """Return the ids of text in which nothing is special."""
        if not text:
            return []
        # Lone surrogates, which JSON can carry, have no UTF-8 form.
        clean = text.encode("utf-8", "replace").decode("utf-8")
        token_ids: list[int] = self._encoder.encode(clean, add_special_tokens=False).ids
        return token_ids

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the text of generated ids, without special tokens; broken UTF-8 gives U+FFFD."""
        return b"".join(map(self.token_bytes, token_ids)).decode("utf-8", "replace")

    def token_bytes(self, token_id: int) -> bytes:
        """Return the bytes a token stands for: none for a special token or an unknown id."""
        return self._bytes[token_id] if 0 <= token_id < len(self._bytes) else b""

    def apply_chat_template(self, messages: Sequence[TemplateMessage]) -> list[int]:
        """Return the ids of a conversation, up to where the assistant begins to speak.

        Raises:
            ChatTemplateError: A message has no role, or content that is not text.
        """
        token_ids: list[int] = []
        for part in render_chat(messages):
            if part.is_mark:
                token_ids.append(self._special[part.text])
            else:
                token_ids += self.encode_text(part.text)
        return token_ids

    def text_stream(self) -> TextStream:
        """Return a fresh reader of generated tokens."""
        return TextStream(self.token_bytes)


def _byte_level_bpe(
    vocabulary: dict[str, int], merges: list[tuple[str, str]], special: list[str]
) -> BpeEncoder:
    encoder = BpeEncoder(models.BPE(vocab=vocabulary, merges=merges))
    encoder.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    encoder.decoder = decoders.ByteLevel()
    encoder.add_special_tokens([AddedToken(token, special=True) for token in special])
    # Special tokens are placed by this module alone; in text their spelling is only spelling.
    encoder.encode_special_tokens = True
    return encoder


def _strings(file: GgufFile, key: str) -> list[str]:
    values = file.metadata.get(key)
    if not isinstance(values, list):
        raise GgufError(file.path, f"has no list {key}")
    return [str(value) for value in values]


def _pair(file: GgufFile, merge: str) -> tuple[str, str]:
    left, separator, right = merge.partition(" ")
    if not separator:
        raise GgufError(file.path, f"has the merge {merge!r}, which is no pair")
    return left, right


def _end_tokens(file: GgufFile) -> tuple[int, ...]:
    end = file.metadata.get("tokenizer.ggml.eos_token_id")
    return (end,) if isinstance(end, int) else ()


def _bytes_of_tokens(tokens: list[str], special: set[int]) -> list[bytes]:
    """Undo GPT-2's spelling of bytes as printable characters, for each token."""
    byte_of = {character: byte for byte, character in byte_spelling().items()}
    return [
        b"" if index in special else bytes(byte_of[character] for character in token)
        for index, token in enumerate(tokens)
    ]


def byte_spelling() -> dict[int, str]:
    """Return the character that stands for each byte: itself where printable, else U+0100 on.

    Source: Radford et al. 2019 (GPT-2), `bytes_to_unicode` of the published encoder.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    spelling = {byte: chr(byte) for byte in printable}
    hidden = [byte for byte in range(256) if byte not in spelling]
    return spelling | {byte: chr(0x100 + index) for index, byte in enumerate(hidden)}
