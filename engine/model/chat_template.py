"""Lay out a conversation as SmolLM2, and other models that read ChatML, were trained to read it.

The layout keeps marks apart from text, so that a message which spells `<|im_end|>` stays text and
cannot end its own turn.

Source: `tokenizer.chat_template` of SmolLM2-135M-Instruct; tests hold this against it.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from engine.errors import EngineError

START_OF_TURN: Final = "<|im_start|>"
END_OF_TURN: Final = "<|im_end|>"
DEFAULT_SYSTEM: Final = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"

TemplateMessage = Mapping[str, object]


class ChatTemplateError(EngineError):
    """A message has no role, or content that is not text."""


class ChatPart(NamedTuple):
    """A stretch of the layout: a mark is one special token, anything else ordinary text."""

    text: str
    is_mark: bool


def render_chat(
    messages: Sequence[TemplateMessage], *, default_system: str | None = DEFAULT_SYSTEM
) -> list[ChatPart]:
    """Lay out the messages, and the opening of the assistant's turn.

    Args:
        messages: Each with a `role` and a `content`: a string, or OpenAI's list of text parts.
        default_system: What opens a conversation that has no system message; None for nothing.

    Raises:
        ChatTemplateError: A message is not of that form.
    """
    turns = [(role_of(message), content_of(message)) for message in messages]
    if turns and turns[0][0] != "system" and default_system is not None:
        turns.insert(0, ("system", default_system))
    parts: list[ChatPart] = []
    for role, content in turns:
        parts += [
            ChatPart(START_OF_TURN, True),
            ChatPart(f"{role}\n{content}", False),
            ChatPart(END_OF_TURN, True),
            ChatPart("\n", False),
        ]
    return [*parts, ChatPart(START_OF_TURN, True), ChatPart("assistant\n", False)]


def role_of(message: TemplateMessage) -> str:
    """Return a message's role; raises ChatTemplateError where it has none."""
    role = message.get("role")
    if not isinstance(role, str) or not role:
        raise ChatTemplateError("a message needs a role, such as 'user'")
    return role


def content_of(message: TemplateMessage) -> str:
    """Return a message's text; raises ChatTemplateError where it is not text."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(_text_of(part) for part in content)
    raise ChatTemplateError("a message's content must be text, or a list of text parts")


def _text_of(part: object) -> str:
    if isinstance(part, Mapping) and part.get("type") == "text":
        text = part.get("text")
        if isinstance(text, str):
            return text
    raise ChatTemplateError("a message's parts must be of the form {'type': 'text', 'text': …}")
