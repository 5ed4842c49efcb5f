"""The endpoints of the OpenAI-compatible API, over one engine thread and one model."""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response

from engine.model.chat_template import TemplateMessage
from engine.request import Request
from engine.sampling_params import SamplingParams
from engine.server.engine_thread import EngineThread, LiveSequence
from engine.server.event_stream import EventStreamResponse
from engine.server.generation import ChoiceWriter, Generation, TextCodec
from engine.server.openai_errors import ApiError, InvalidFieldError, UnknownModelError
from engine.server.openai_replies import ReplyForm, reply_form
from engine.server.openai_requests import (
    COMPLETION_MAX_TOKENS,
    GenerationAsk,
    Prompt,
    parse_chat,
    parse_completion,
)
from engine.server.request_body import read_json_object, until_disconnected
from engine.server.stop_strings import StopStrings
from engine.server.tenant_aliases import TenantAliases
from kvpulse.identity import KeyedHashes

MAX_TOKENS_KEPT: Final = 0xFFFF_FFFE  # what the journal can hold of an asked max_tokens
ANY_TOKEN_ID: Final = 1 << 31  # what a simulation, which has no vocabulary, takes
MAX_RETRY_COUNT: Final = 1000
INLINE_TEXT_CHARS: Final = 2000  # longer texts are encoded off the event loop

Parser = Callable[[Mapping[str, object]], GenerationAsk]


@dataclass(frozen=True, slots=True)
class ServedModel:
    """The model behind the API.

    Attributes:
        names: What clients may call it; the first is what it calls itself.
        vocab_size: Token ids are below this; 0 where any id will do.
        most_tokens: What one sequence can hold here: the context, or the whole pool if smaller.
    """

    names: tuple[str, ...]
    text: TextCodec
    vocab_size: int
    most_tokens: int


class OpenAiApi:
    """Answers the endpoints under `/v1`."""

    def __init__(
        self,
        engine: EngineThread,
        model: ServedModel,
        *,
        tenants: TenantAliases,
        hashes: KeyedHashes,
    ) -> None:
        self._engine = engine
        self._model = model
        self._tenants = tenants
        self._hashes = hashes
        self._created = int(time.time())

    async def models(self, request: HttpRequest) -> Response:
        """Answer `/v1/models`."""
        cards = [
            {"id": name, "object": "model", "created": self._created, "owned_by": "kvpulse"}
            for name in self._model.names
        ]
        return JSONResponse({"object": "list", "data": cards})

    async def completions(self, request: HttpRequest) -> Response:
        """Answer `/v1/completions`."""
        return await self._serve(request, parse_completion)

    async def chat_completions(self, request: HttpRequest) -> Response:
        """Answer `/v1/chat/completions`."""
        return await self._serve(request, parse_chat)

    async def _serve(self, http: HttpRequest, parse: Parser) -> Response:
        body = await read_json_object(http)
        try:
            ask = parse(body)
            self._check_model(ask)
            requests = await self._requests(ask, http)
        except ApiError:
            await self._record_invalid(body, http)
            raise
        writers = [
            ChoiceWriter(index, self._model.text.text_stream(), StopStrings(ask.stop))
            for index in range(len(requests))
        ]
        generation = Generation(self._engine, requests, writers)
        try:
            await generation.submit()
        except BaseException:
            generation.cancel()
            raise
        return await self._answer(ask, generation, http)

    async def _answer(
        self, ask: GenerationAsk, generation: Generation, http: HttpRequest
    ) -> Response:
        form = reply_form(ask, model=ask.model or self._model.names[0], created=int(time.time()))
        headers = {
            "x-request-id": form.request_id,
            "x-kvpulse-owner": ",".join(map(str, generation.seq_ids)),
        }
        if ask.stream:
            include_usage = ask.include_usage
            return EventStreamResponse(
                generation, form, include_usage=include_usage, headers=headers
            )
        return await self._whole_answer(form, generation, http, headers)

    async def _whole_answer(
        self,
        form: ReplyForm,
        generation: Generation,
        http: HttpRequest,
        headers: Mapping[str, str],
    ) -> Response:
        generating = asyncio.ensure_future(generation.whole())
        leaving = asyncio.ensure_future(until_disconnected(http.receive))
        try:
            await asyncio.wait({generating, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            generation.cancel()
            leaving.cancel()
            if not generating.done():
                generating.cancel()
        if not generating.done() or generating.cancelled():
            return Response(status_code=499)  # nobody is there to read it
        return JSONResponse(form.whole(generating.result(), generation.usage), headers=headers)

    def _check_model(self, ask: GenerationAsk) -> None:
        if ask.model is not None and ask.model not in self._model.names:
            raise UnknownModelError(ask.model, served=self._model.names)

    async def _requests(self, ask: GenerationAsk, http: HttpRequest) -> list[Request]:
        prompts = [await self._encode(prompt) for prompt in ask.prompts]
        if ask.is_chat:
            prompts = [await self._encode_chat(ask)]
        return [self._request(ask, token_ids, http) for token_ids in prompts]

    async def _encode(self, prompt: Prompt) -> list[int]:
        if isinstance(prompt, str):
            if len(prompt) > INLINE_TEXT_CHARS:
                token_ids = await asyncio.to_thread(self._model.text.encode, prompt)
            else:
                token_ids = self._model.text.encode(prompt)
        else:
            token_ids = list(prompt)
            largest = max(token_ids)
            if largest >= (self._model.vocab_size or ANY_TOKEN_ID):
                raise InvalidFieldError(f"Token id {largest} is out of vocabulary")
        if not token_ids:
            raise InvalidFieldError("You must pass at least one prompt")
        return token_ids

    async def _encode_chat(self, ask: GenerationAsk) -> list[int]:
        messages: list[TemplateMessage] = list(ask.messages)
        return await asyncio.to_thread(self._model.text.apply_chat_template, messages)

    def _request(self, ask: GenerationAsk, token_ids: list[int], http: HttpRequest) -> Request:
        room = max(self._model.most_tokens - len(token_ids), 1)
        default = room if ask.is_chat else min(COMPLETION_MAX_TOKENS, room)
        sampling = SamplingParams(
            max_tokens=default if ask.max_tokens is None else min(ask.max_tokens, MAX_TOKENS_KEPT),
            temperature=ask.temperature,
            top_p=ask.top_p,
            top_k=ask.top_k,
            seed=ask.seed,
            ignore_eos=ask.ignore_eos,
        )
        return Request(
            prompt_token_ids=token_ids,
            sampling=sampling,
            tenant=self._tenant(ask.user, http),
            max_tokens_asked=ask.max_tokens is not None,
            retry=_retry_count(http),
            request_hash=self._request_hash(http),
        )

    def _tenant(self, user: str | None, http: HttpRequest) -> str:
        return self._tenants.resolve(http.headers.get("x-kvpulse-tenant") or user)

    def _request_hash(self, http: HttpRequest) -> int:
        client_id = http.headers.get("x-request-id")
        return self._hashes.request_hash(client_id) if client_id else 0

    async def _record_invalid(self, body: Mapping[str, object], http: HttpRequest) -> None:
        """Let the engine state the arrival and refusal of a request that cannot be served."""
        user = body.get("user")
        request = Request(
            tenant=self._tenant(user if isinstance(user, str) else None, http),
            max_tokens_asked=False,
            retry=_retry_count(http),
            request_hash=self._request_hash(http),
        )
        # A request without a prompt is one that the engine refuses as invalid.
        await self._engine.submit(request, LiveSequence(0, asyncio.Queue()))


def _retry_count(http: HttpRequest) -> int:
    text = http.headers.get("x-stainless-retry-count", "")
    return min(int(text), MAX_RETRY_COUNT) if text.isdecimal() and len(text) < 10 else 0
