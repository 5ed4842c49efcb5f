"""The endpoints of the OpenAI-compatible API, over one engine thread and one model."""

import asyncio
import time
from collections.abc import Callable, Mapping

from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response

from engine.request import Request
from engine.server.accept_time import accepted_ns
from engine.server.choice_writer import ChoiceWriter
from engine.server.engine_thread import EngineThread
from engine.server.event_stream import EventStreamResponse
from engine.server.generation import Generation, PromptAnswers
from engine.server.live_requests import LiveRequest
from engine.server.openai_errors import ApiError, UnknownModelError
from engine.server.openai_replies import ReplyForm, reply_form
from engine.server.openai_requests import GenerationAsk, parse_chat, parse_completion
from engine.server.openai_samples import refuse_more_than
from engine.server.request_body import read_json_object, until_disconnected
from engine.server.request_builder import RequestBuilder
from engine.server.request_times import RequestTimes
from engine.server.served_model import ServedModel
from engine.server.service_level import parse_service_level
from engine.server.stop_strings import StopStrings

Parser = Callable[[Mapping[str, object]], GenerationAsk]


class OpenAiApi:
    """Answers the endpoints under `/v1`."""

    def __init__(
        self,
        engine: EngineThread,
        model: ServedModel,
        builder: RequestBuilder,
        *,
        max_samples: int,
        delay_seconds: Callable[[], float],
    ) -> None:
        """Prepare it.

        Args:
            max_samples: Most sequences of one prompt.
            delay_seconds: How long each request is held before the engine gets it (a fault).
        """
        self._engine = engine
        self._model = model
        self._builder = builder
        self._max_samples = max_samples
        self._delay_seconds = delay_seconds
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
        accepted = accepted_ns(http.scope)
        body = await read_json_object(http)
        delay = self._delay_seconds()
        if delay > 0:
            await asyncio.sleep(delay)
        try:
            ask = parse(body)
            self._check(ask)
            level = parse_service_level(body, http.headers)
            requests = await self._builder.build(ask, level, http.headers)
        except ApiError as error:
            raise await self._recorded(error, body, http, accepted) from None
        times = RequestTimes(accepted, level.timeout_ns, level.queue_timeout_ns)
        generation = Generation(self._engine, self._answers(ask, requests), times)
        try:
            await generation.submit()
        except BaseException:
            generation.cancel()
            raise
        return await self._answer(ask, generation, http)

    def _check(self, ask: GenerationAsk) -> None:
        if ask.model is not None and ask.model not in self._model.names:
            raise UnknownModelError(ask.model, served=self._model.names)
        refuse_more_than(self._max_samples, ask.samples)

    def _answers(self, ask: GenerationAsk, requests: list[Request]) -> list[PromptAnswers]:
        """Give each sample of each prompt its choice, numbered as OpenAI does."""
        per_prompt = ask.samples.num_answers
        return [
            PromptAnswers(
                request,
                [
                    ChoiceWriter(index, self._model.text.text_stream(), StopStrings(ask.stop))
                    for index in range(at * per_prompt, (at + 1) * per_prompt)
                ],
            )
            for at, request in enumerate(requests)
        ]

    async def _answer(
        self, ask: GenerationAsk, generation: Generation, http: HttpRequest
    ) -> Response:
        form = reply_form(ask, model=ask.model or self._model.names[0], created=int(time.time()))
        if ask.stream:
            return EventStreamResponse(generation, form, include_usage=ask.include_usage)
        return await self._whole_answer(form, generation, http)

    async def _whole_answer(
        self, form: ReplyForm, generation: Generation, http: HttpRequest
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
        body = form.whole(generating.result(), generation.usage)
        return JSONResponse(body, headers=generation.headers(form.request_id))

    async def _recorded(
        self, error: ApiError, body: Mapping[str, object], http: HttpRequest, accepted: int
    ) -> ApiError:
        """Let the engine state arrival and refusal of what cannot be served; return the error."""
        request = self._builder.unservable(body, http.headers)
        live = LiveRequest(0, asyncio.Queue())
        refused = await self._engine.submit(request, live, RequestTimes(accepted))
        assert refused is not None, "it has no prompt"
        return error.recorded_as(refused.rejection.reason, owner=live.root)
