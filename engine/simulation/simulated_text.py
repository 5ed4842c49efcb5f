"""Text for an engine without a model: a stable split into token ids, and dummy words for tokens.

Equal texts give equal ids, so that the prefix cache sees shared prompts as a real tokenizer would
show them; about four characters make one token, as in English.
"""

import itertools
import re
from hashlib import blake2b
from typing import Final

from engine.model.chat_template import TemplateMessage

VOCAB_SIZE: Final = 49_152

_PIECE: Final = re.compile(r"\s?\w{1,5}|\s?[^\w\s]{1,3}|\s+")
_WORDS: Final = (
    " block", " pool", " cache", " step", " token", " queue", " share", " free", " evict", " reuse",
    " prefix", " table", " slot", " batch", " wait", " admit",
)  # fmt: skip


class SimulatedText:
    """Stands where a tokenizer stands when tokens come from the cost model."""

    def encode(self, text: str) -> list[int]:
        """Return one id for each piece of about four characters."""
        return [_piece_id(piece) for piece in _PIECE.findall(text)]

    def apply_chat_template(self, messages: list[TemplateMessage]) -> list[int]:
        """Return the ids of a conversation, each turn marked by its role."""
        turns = (f"<{message['role']}>\n{message['content']}\n" for message in messages)
        return self.encode("".join(turns) + "<assistant>\n")

    def text_stream(self) -> "SimulatedTextStream":
        """Return a fresh reader of generated ids."""
        return SimulatedTextStream()


class SimulatedTextStream:
    """Gives one dummy word per token, whichever token it is."""

    def __init__(self) -> None:
        self._words = itertools.cycle(_WORDS)

    def push(self, token_id: int) -> str:
        """Return the next word."""
        return next(self._words)

    def flush(self) -> str:
        """Return nothing: no word is ever held back."""
        return ""


def _piece_id(piece: str) -> int:
    digest = blake2b(piece.encode("utf-8", "surrogatepass"), digest_size=4).digest()
    return int.from_bytes(digest, "little") % VOCAB_SIZE
