"""Build the JSON that `/v1/completions` and `/v1/chat/completions` answer, whole or in chunks."""

import json
import secrets
from dataclasses import dataclass
from typing import Final, Protocol

from engine.server.openai_requests import GenerationAsk

DONE: Final = b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one API request, over all its prompts."""

    prompt_tokens: int
    completion_tokens: int

    def body(self) -> dict[str, object]:
        """Return the `usage` object."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
            "completion_tokens": self.completion_tokens,
        }


@dataclass(frozen=True, slots=True)
class Choice:
    """One prompt's answer, or the next piece of it."""

    index: int
    text: str
    finish_reason: str | None


class ReplyForm(Protocol):
    """The shape of one endpoint's answers."""

    request_id: str

    def whole(self, choices: list[Choice], usage: Usage) -> dict[str, object]:
        """Return the answer of a request that does not stream."""

    def opening(self, index: int) -> dict[str, object] | None:
        """Return the chunk that opens a choice, if this endpoint has one."""

    def chunk(self, choice: Choice) -> dict[str, object]:
        """Return the chunk that carries a piece of a choice."""

    def usage_chunk(self, usage: Usage) -> dict[str, object]:
        """Return the last chunk of a stream that was asked for usage."""


def reply_form(ask: GenerationAsk, *, model: str, created: int) -> ReplyForm:
    """Return the form in which a request is to be answered, with a fresh id."""
    if ask.is_chat:
        return ChatReply(f"chatcmpl-{secrets.token_hex(8)}", model, created)
    return CompletionReply(f"cmpl-{secrets.token_hex(8)}", model, created)


def sse(body: dict[str, object]) -> bytes:
    """Return one server-sent event."""
    return b"data: " + json.dumps(body, separators=(",", ":")).encode() + b"\n\n"


class CompletionReply:
    """The form of `/v1/completions`: text."""

    def __init__(self, request_id: str, model: str, created: int) -> None:
        self.request_id = request_id
        self._head = {
            "id": request_id,
            "object": "text_completion",
            "created": created,
            "model": model,
        }

    def whole(self, choices: list[Choice], usage: Usage) -> dict[str, object]:
        """Return the whole answer."""
        return {**self._head, "choices": [_text(c) for c in choices], "usage": usage.body()}

    def opening(self, index: int) -> dict[str, object] | None:
        """Return None: the first piece of text opens a completion."""
        return None

    def chunk(self, choice: Choice) -> dict[str, object]:
        """Return one piece of text."""
        return {**self._head, "choices": [_text(choice)]}

    def usage_chunk(self, usage: Usage) -> dict[str, object]:
        """Return the chunk without choices that ends a stream."""
        return {**self._head, "choices": [], "usage": usage.body()}


class ChatReply:
    """The form of `/v1/chat/completions`: an assistant's message."""

    def __init__(self, request_id: str, model: str, created: int) -> None:
        self.request_id = request_id
        self._head = {"id": request_id, "created": created, "model": model}

    def whole(self, choices: list[Choice], usage: Usage) -> dict[str, object]:
        """Return the whole answer."""
        messages = [
            {
                "index": choice.index,
                "message": {"role": "assistant", "content": choice.text, "refusal": None},
                "logprobs": None,
                "finish_reason": choice.finish_reason,
            }
            for choice in choices
        ]
        head = {"object": "chat.completion", **self._head}
        return {**head, "choices": messages, "usage": usage.body()}

    def opening(self, index: int) -> dict[str, object] | None:
        """Return the chunk that names the role."""
        return self._delta(index, {"role": "assistant", "content": ""}, None)

    def chunk(self, choice: Choice) -> dict[str, object]:
        """Return one piece of the message."""
        delta = {"content": choice.text} if choice.text else {}
        return self._delta(choice.index, delta, choice.finish_reason)

    def usage_chunk(self, usage: Usage) -> dict[str, object]:
        """Return the chunk without choices that ends a stream."""
        return {
            "object": "chat.completion.chunk",
            **self._head,
            "choices": [],
            "usage": usage.body(),
        }

    def _delta(
        self, index: int, delta: dict[str, str], finish_reason: str | None
    ) -> dict[str, object]:
        choice = {
            "index": index,
            "delta": delta,
            "logprobs": None,
            "finish_reason": finish_reason,
        }
        return {"object": "chat.completion.chunk", **self._head, "choices": [choice]}


def _text(choice: Choice) -> dict[str, object]:
    return {
        "index": choice.index,
        "text": choice.text,
        "logprobs": None,
        "finish_reason": choice.finish_reason,
    }
