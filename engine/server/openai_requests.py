"""Turn the JSON bodies of `/v1/completions` and `/v1/chat/completions` into one checked value."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from engine.server.openai_errors import InvalidFieldError
from engine.server.openai_fields import Fields, json_type
from engine.server.openai_samples import SampleAsk, parse_samples

MAX_STOP_STRINGS: Final = 16
MAX_PROMPTS: Final = 64
COMPLETION_MAX_TOKENS: Final = 16  # what OpenAI and vLLM take when a completion does not say

Message = dict[str, str]
Prompt = str | tuple[int, ...]


@dataclass(frozen=True, slots=True)
class GenerationAsk:
    """What one API request asks for; exactly one of `prompts` and `messages` is filled."""

    model: str | None
    prompts: tuple[Prompt, ...]
    messages: tuple[Message, ...]
    max_tokens: int | None  # as the client asked; None: it did not say
    temperature: float
    top_p: float
    top_k: int
    seed: int | None
    stop: tuple[str, ...]
    ignore_eos: bool
    samples: SampleAsk
    stream: bool
    include_usage: bool
    user: str | None

    @property
    def is_chat(self) -> bool:
        """Whether the answer is a chat message."""
        return bool(self.messages)


def parse_completion(body: Mapping[str, object]) -> GenerationAsk:
    """Check the body of `/v1/completions`."""
    fields = Fields(body)
    _refuse_unsupported(fields, ("echo", "suffix", "logprobs"))
    prompts = _prompts(fields.raw("prompt"))
    return _ask(fields, prompts=prompts, max_tokens=fields.integer("max_tokens", at_least=1))


def parse_chat(body: Mapping[str, object]) -> GenerationAsk:
    """Check the body of `/v1/chat/completions`."""
    fields = Fields(body)
    _refuse_unsupported(fields, ("logprobs", "tools", "functions", "audio"))
    if fields.object("response_format").text("type") not in (None, "text"):
        raise InvalidFieldError("response_format must be text here.", param="response_format")
    newer = fields.integer("max_completion_tokens", at_least=1)
    older = fields.integer("max_tokens", at_least=1)
    messages = _messages(fields.raw("messages"))
    return _ask(fields, messages=messages, max_tokens=older if newer is None else newer)


def _ask(
    fields: Fields,
    *,
    max_tokens: int | None,
    prompts: tuple[Prompt, ...] = (),
    messages: tuple[Message, ...] = (),
) -> GenerationAsk:
    stream = fields.flag("stream")
    return GenerationAsk(
        model=fields.text("model"),
        prompts=prompts,
        messages=messages,
        max_tokens=max_tokens,
        temperature=fields.number("temperature", default=1.0, low=0.0, high=100.0),
        top_p=_top_p(fields),
        top_k=max(fields.integer("top_k", at_least=-1) or 0, 0),
        seed=_seed(fields),
        stop=_stop(fields.raw("stop")),
        ignore_eos=fields.flag("ignore_eos"),
        samples=parse_samples(fields, is_chat=bool(messages), stream=stream),
        stream=stream,
        include_usage=fields.object("stream_options").flag("include_usage"),
        user=fields.text("user"),
    )


def _refuse_unsupported(fields: Fields, names: tuple[str, ...]) -> None:
    for name in names:
        if fields.raw(name) not in (None, False, [], ""):
            raise InvalidFieldError(f"{name} is not supported by this server.", param=name)


def _top_p(fields: Fields) -> float:
    value = fields.number("top_p", default=1.0, low=0.0, high=1.0)
    if value == 0.0:
        raise InvalidFieldError("top_p must be above 0.", param="top_p")
    return value


def _seed(fields: Fields) -> int | None:
    value = fields.integer("seed")
    if value is not None and not -(2**63) <= value < 2**63:
        raise InvalidFieldError("seed must fit into 64 bits.", param="seed")
    return value


def _stop(value: object) -> tuple[str, ...]:
    items = [value] if isinstance(value, str) else value
    if items is None:
        return ()
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        raise InvalidFieldError("stop must be a string or an array of strings.", param="stop")
    if len(items) > MAX_STOP_STRINGS or "" in items:
        message = f"stop must hold at most {MAX_STOP_STRINGS} strings, none of them empty."
        raise InvalidFieldError(message, param="stop")
    return tuple(items)


def _prompts(value: object) -> tuple[Prompt, ...]:
    match value:
        case str():
            return (value,)
        case None | []:
            raise InvalidFieldError("You must pass at least one prompt")
        case [int(), *_]:
            return (_token_ids(value),)
        case [*items] if len(items) > MAX_PROMPTS:
            message = f"prompt holds {len(items)} prompts, at most {MAX_PROMPTS} are taken at once."
            raise InvalidFieldError(message, param="prompt")
        case [*items]:
            return tuple(_one_prompt(item) for item in items)
        case _:
            message = (
                f"prompt must be text, token ids, or an array of those, got {json_type(value)}."
            )
            raise InvalidFieldError(message, param="prompt")


def _one_prompt(value: object) -> Prompt:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value:
        return _token_ids(value)
    message = "Each prompt of an array must be text or a non-empty array of token ids."
    raise InvalidFieldError(message, param="prompt")


def _token_ids(value: Sequence[object]) -> tuple[int, ...]:
    ids = tuple(item for item in value if isinstance(item, int) and not isinstance(item, bool))
    if len(ids) != len(value) or min(ids) < 0:
        message = "An array of token ids must hold non-negative integers only."
        raise InvalidFieldError(message, param="prompt")
    return ids


def _messages(value: object) -> tuple[Message, ...]:
    if not isinstance(value, list) or not value:
        raise InvalidFieldError("messages must be a non-empty array.", param="messages")
    return tuple(_message(item) for item in value)


def _message(value: object) -> Message:
    if not isinstance(value, dict):
        message = f"Each of messages must be an object, got {json_type(value)}."
        raise InvalidFieldError(message, param="messages")
    role = value.get("role")
    if not isinstance(role, str) or not role:
        raise InvalidFieldError("Each of messages needs a role.", param="messages")
    return {"role": role, "content": _content(value.get("content"))}


def _content(value: object) -> str:
    if isinstance(value, str):
        return value
    parts = value if isinstance(value, list) else [value]
    texts = [_part_text(part) for part in parts]
    return "".join(texts)


def _part_text(part: object) -> str:
    if isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str):
        return str(part["text"])
    message = "The content of a message must be text: a string, or parts of type text."
    raise InvalidFieldError(message, param="messages")
