"""Lay out a conversation by the jinja template that a model folder brings along.

The template runs sandboxed: it sees the messages and the special tokens, and reaches nothing else.
What a message says is kept apart from what the template says: a special token that is spelled out
in a message is replaced before the template runs and put back as text afterwards, so that no
message can end its own turn.
"""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NoReturn

from engine.model.chat_template import (
    ChatPart,
    ChatTemplateError,
    TemplateMessage,
    content_of,
    role_of,
)

if TYPE_CHECKING:
    from jinja2 import Template

# A private-use character that stands before what was replaced; its own self is escaped as well.
ESCAPE: Final = "\uf8fe"
ESCAPE_ITSELF: Final = f"{ESCAPE}!"

# What expressions of a template can raise besides jinja's own errors.
FAULTS_OF_TEMPLATES: Final = (
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    RecursionError,
    TypeError,
    ValueError,
)


class JinjaChat:
    """One compiled template, and the special tokens that it may write."""

    def __init__(
        self, source: str, special_tokens: Sequence[str], named: Mapping[str, str]
    ) -> None:
        """Compile a template.

        Args:
            source: The template.
            special_tokens: Every text that is one special token.
            named: What `bos_token`, `eos_token`, … stand for.

        Raises:
            ChatTemplateError: The template cannot be compiled, or jinja2 is not installed.
        """
        self._template = _compile(source)
        self._named = dict(named)
        self._special = sorted(special_tokens, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, self._special)) or r"(?!)")
        self._escaped = {text: f"{ESCAPE}{index};" for index, text in enumerate(self._special)}

    def render(self, messages: Sequence[TemplateMessage]) -> list[ChatPart]:
        """Lay out the messages, and the opening of the assistant's turn.

        Raises:
            ChatTemplateError: A message has no role or no text, or the template refuses it.
        """
        from jinja2 import TemplateError

        turns = [
            {
                "role": self._escape(role_of(message)),
                "content": self._escape(content_of(message)),
            }
            for message in messages
        ]
        try:
            rendered = self._template.render(
                messages=turns, add_generation_prompt=True, **self._named
            )
        except (TemplateError, *FAULTS_OF_TEMPLATES) as error:
            raise ChatTemplateError(f"the model's chat template fails: {error}") from error
        return self._split(rendered)

    def _escape(self, text: str) -> str:
        text = text.replace(ESCAPE, ESCAPE_ITSELF)
        return self._pattern.sub(lambda match: self._escaped[match.group()], text)

    def _unescape(self, text: str) -> str:
        for spelled, escaped in self._escaped.items():
            text = text.replace(escaped, spelled)
        return text.replace(ESCAPE_ITSELF, ESCAPE)

    def _split(self, rendered: str) -> list[ChatPart]:
        parts, end = [], 0
        for match in self._pattern.finditer(rendered):
            parts.append(ChatPart(self._unescape(rendered[end : match.start()]), False))
            parts.append(ChatPart(match.group(), True))
            end = match.end()
        parts.append(ChatPart(self._unescape(rendered[end:]), False))
        return [part for part in parts if part.text]


def _compile(source: str) -> "Template":
    try:
        from jinja2 import TemplateError
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ModuleNotFoundError as error:
        raise ChatTemplateError(
            "the model's chat template needs jinja2, which is not installed"
        ) from error
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.globals["raise_exception"] = _refuse
    try:
        return environment.from_string(source)
    except (TemplateError, RecursionError) as error:
        raise ChatTemplateError(f"the model's chat template is damaged: {error}") from error


def _refuse(message: str) -> NoReturn:
    """Stand behind `raise_exception`, with which templates refuse a conversation."""
    raise ChatTemplateError(f"the model's chat template refuses: {message}")
