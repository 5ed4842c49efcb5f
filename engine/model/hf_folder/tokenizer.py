"""Text to token ids and back, by the tokenizer.json of a model folder."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tokenizers import Tokenizer as Encoder

from engine.model.chat_template import (
    END_OF_TURN,
    START_OF_TURN,
    ChatPart,
    ChatTemplateError,
    TemplateMessage,
    render_chat,
)
from engine.model.hf_folder.chat import JinjaChat
from engine.model.hf_folder.config import read_end_tokens
from engine.model.hf_folder.json_files import ModelFolderError, read_json
from engine.model.text_stream import TextStream
from engine.model.tokenizer import byte_spelling

TOKENIZER_FILE: Final = "tokenizer.json"
SETTINGS_FILE: Final = "tokenizer_config.json"
TEMPLATE_FILE: Final = "chat_template.jinja"
MAX_TEMPLATE_BYTES: Final = 1 << 20
SPACE_MARK: Final = "\u2581"  # how SentencePiece spells a space
BYTE_TOKEN: Final = re.compile(r"<0x([0-9A-F]{2})>")


class FolderTokenizer:
    """The tokenizer of a model folder."""

    def __init__(self, folder: Path, *, vocab_size: int) -> None:
        """Read the tokenizer; nothing of the folder stays open.

        Args:
            folder: Where tokenizer.json lies.
            vocab_size: Rows of the model's embedding, which no token id may pass.

        Raises:
            ModelFolderError: A file is missing or damaged, or of a kind that is not built here.
            ChatTemplateError: The folder's chat template cannot be compiled.
        """
        path = folder / TOKENIZER_FILE
        description = read_json(path)
        self._encoder, self._text_encoder = _encoders(path, description)
        self._ids = self._encoder.get_vocab(with_added_tokens=True)
        largest = max(self._ids.values(), default=-1)
        if largest >= vocab_size:
            raise ModelFolderError(path, f"has token id {largest}; the model has {vocab_size} ids")
        self.vocab_size = vocab_size
        self.eos_token_ids = read_end_tokens(folder)
        added = self._encoder.get_added_tokens_decoder()
        self._special = {token.content: index for index, token in added.items() if token.special}
        plain = {index: token.content for index, token in added.items() if not token.special}
        self._bytes = _bytes_of_tokens(path, description, self._ids)
        self._bytes |= {index: text.encode() for index, text in plain.items()}
        self._bytes |= dict.fromkeys(self._special.values(), b"")
        self._chat = _read_chat(folder, list(self._special))

    def encode(self, text: str) -> list[int]:
        """Return a prompt's ids; special tokens spelled out in it are those tokens."""
        token_ids: list[int] = self._encoder.encode(_clean(text), add_special_tokens=True).ids
        return token_ids

    def encode_text(self, text: str) -> list[int]:
        """Return the ids of text in which nothing is special."""
        token_ids: list[int] = self._text_encoder.encode(_clean(text), add_special_tokens=False).ids
        return token_ids

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the text of generated ids, without special tokens; broken UTF-8 gives U+FFFD."""
        return b"".join(map(self.token_bytes, token_ids)).decode("utf-8", "replace")

    def token_bytes(self, token_id: int) -> bytes:
        """Return the bytes a token stands for: none for a special token or an unknown id."""
        return self._bytes.get(token_id, b"")

    def apply_chat_template(self, messages: Sequence[TemplateMessage]) -> list[int]:
        """Return the ids of a conversation, up to where the assistant begins to speak.

        Raises:
            ChatTemplateError: A message is not text with a role, the template refuses it, or the
                model has no template.
        """
        token_ids: list[int] = []
        for part in self._lay_out(messages):
            token_ids += [self._special[part.text]] if part.is_mark else self.encode_text(part.text)
        return token_ids

    def _lay_out(self, messages: Sequence[TemplateMessage]) -> list[ChatPart]:
        if self._chat is not None:
            return self._chat.render(messages)
        if {START_OF_TURN, END_OF_TURN} <= self._special.keys():
            return render_chat(messages, default_system=None)
        raise ChatTemplateError(
            "this model has no chat template and no ChatML tokens; send a plain prompt instead"
        )

    def text_stream(self) -> TextStream:
        """Return a fresh reader of generated tokens."""
        return TextStream(self.token_bytes)


def _clean(text: str) -> str:
    # Lone surrogates, which JSON can carry, have no UTF-8 form.
    return text.encode("utf-8", "replace").decode("utf-8")


def _encoders(path: Path, description: Mapping[str, object]) -> tuple[Encoder, Encoder]:
    """Return the encoder, and another one to which nothing in a text is special."""
    try:
        encoder, text_encoder = (Encoder.from_str(json.dumps(description)) for _ in range(2))
    # The library raises nothing more specific for a file that it cannot read.
    except Exception as error:
        raise ModelFolderError(path, f"is no tokenizer that can be read: {error}") from error
    for one in (encoder, text_encoder):
        # What the file may ask for would cut prompts off or fill them up, unsaid.
        one.no_truncation()
        one.no_padding()
    text_encoder.encode_special_tokens = True
    return encoder, text_encoder


def _bytes_of_tokens(
    path: Path, description: Mapping[str, Any], ids: Mapping[str, int]
) -> dict[int, bytes]:
    """Return what each token spells, by the way the file says it is spelled."""
    kinds = _decoder_kinds(description.get("decoder"))
    if "ByteLevel" in kinds:
        byte_of = {character: byte for byte, character in byte_spelling().items()}
        return {
            index: bytes(byte_of[one] for one in token if one in byte_of)
            for token, index in ids.items()
        }
    if "ByteFallback" in kinds or "Metaspace" in kinds:
        return {index: _sentencepiece_bytes(token) for token, index in ids.items()}
    raise ModelFolderError(
        path, f"spells tokens by {sorted(kinds)}; built here are ByteLevel, ByteFallback, Metaspace"
    )


def _decoder_kinds(decoder: object) -> set[str]:
    if not isinstance(decoder, Mapping):
        return set()
    inner = decoder.get("decoders")
    steps = inner if isinstance(inner, list) else [decoder]
    return {str(step.get("type")) for step in steps if isinstance(step, Mapping)}


def _sentencepiece_bytes(token: str) -> bytes:
    one_byte = BYTE_TOKEN.fullmatch(token)
    if one_byte:
        return bytes([int(one_byte.group(1), 16)])
    return token.replace(SPACE_MARK, " ").encode("utf-8", "replace")


def _read_chat(folder: Path, special: list[str]) -> JinjaChat | None:
    """Return the folder's chat template, if it has one."""
    path = folder / SETTINGS_FILE
    settings = read_json(path) if path.is_file() else {}
    source = _template_source(folder, settings)
    if source is None:
        return None
    named = {
        key: text
        for key in ("bos_token", "eos_token", "unk_token", "pad_token")
        if (text := _token_text(settings.get(key))) is not None
    }
    return JinjaChat(source, special, named)


def _template_source(folder: Path, settings: Mapping[str, object]) -> str | None:
    beside = folder / TEMPLATE_FILE
    if beside.is_file():
        if beside.stat().st_size > MAX_TEMPLATE_BYTES:
            raise ModelFolderError(beside, f"is larger than {MAX_TEMPLATE_BYTES} bytes")
        try:
            return beside.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ModelFolderError(beside, f"cannot be read: {error}") from error
    template = settings.get("chat_template")
    if isinstance(template, list):
        named = [one for one in template if isinstance(one, Mapping)]
        default = [one.get("template") for one in named if one.get("name") == "default"]
        template = default[0] if default else None
    return template if isinstance(template, str) else None


def _token_text(token: object) -> str | None:
    """Return a special token's text, which may be given bare or as an object."""
    if isinstance(token, Mapping):
        token = token.get("content")
    return token if isinstance(token, str) else None
