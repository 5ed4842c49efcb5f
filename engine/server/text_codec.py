"""The text side of a model, as the server needs it."""

from typing import Protocol

from engine.model.chat_template import TemplateMessage


class TextStream(Protocol):
    """Turns token ids into text, holding back what is not whole yet."""

    def push(self, token_id: int) -> str:
        """Return the text that a token completes."""

    def flush(self) -> str:
        """Return what is still held back, at the end."""


class TextCodec(Protocol):
    """Turns text into token ids and back."""

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text."""

    def apply_chat_template(self, messages: list[TemplateMessage]) -> list[int]:
        """Return the ids of a conversation that the model is to continue."""

    def text_stream(self) -> TextStream:
        """Return a fresh reader of generated ids."""
