"""One API request on its way through the engine: its prompts, their samples, their text."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from engine.admission import Rejection
from engine.request import Request
from engine.server.choice_writer import ChoiceWriter
from engine.server.engine_thread import EngineThread
from engine.server.live_requests import GOOD_ENDS, LiveRequest, Refused, RequestEvent
from engine.server.openai_errors import ApiError, EngineFailedError
from engine.server.openai_replies import Choice, Usage
from engine.server.refusals import refusal
from engine.server.request_times import RequestTimes
from engine.server.retry_after import MIN_SECONDS
from engine.server.text_codec import TextCodec as TextCodec
from kvpulse.events import FinishReason, RejectReason


@dataclass(frozen=True, slots=True)
class PromptAnswers:
    """One prompt as the engine gets it, and a writer for each of its samples."""

    request: Request
    writers: Sequence[ChoiceWriter]


class Generation:
    """The prompts of one API request; each is a request of its own to the engine."""

    def __init__(
        self, engine: EngineThread, prompts: Sequence[PromptAnswers], times: RequestTimes
    ) -> None:
        self._engine = engine
        self._prompts = prompts
        self._times = times
        self._events: asyncio.Queue[RequestEvent] = asyncio.Queue()
        self._first: RequestEvent | None = None
        self._live: list[LiveRequest] = []

    async def submit(self) -> None:
        """Hand every prompt to the engine; raise the error of the first that it refuses."""
        for index, prompt in enumerate(self._prompts):
            live = LiveRequest(index, self._events, num_answers=len(prompt.writers))
            self._live.append(live)
            refused = await self._engine.submit(prompt.request, live, self._times)
            if refused is not None:
                raise _refusal(refused, live)

    async def begun(self) -> None:
        """Wait for the first token; raise what ended the request before it."""
        self._first = await self._events.get()
        self._raise_bad_end(self._first)

    @property
    def num_choices(self) -> int:
        """How many samples there will be."""
        return sum(len(prompt.writers) for prompt in self._prompts)

    @property
    def owners(self) -> list[int]:
        """The engine's numbers of the sequences so far, each prompt's first one at its head."""
        return list(
            dict.fromkeys(
                number
                for live in self._live
                for number in (live.root, *(seq_id for _, seq_id in sorted(live.seq_ids.items())))
            )
        )

    def headers(self, request_id: str) -> dict[str, str]:
        """Return the headers by which an answer is found again."""
        return {"x-request-id": request_id, "x-kvpulse-owner": ",".join(map(str, self.owners))}

    async def pieces(self) -> AsyncIterator[Choice]:
        """Yield the text of all choices as it is generated, until each has finished."""
        open_choices = self.num_choices
        while open_choices:
            item = self._first or await self._events.get()
            self._first = None
            self._raise_bad_end(item)
            writer = self._prompts[item.request.index].writers[item.event.index]
            piece = writer.push(item.event)
            if piece is None:
                continue
            if writer.finished:
                open_choices -= 1
            if writer.stopped_early:
                self._engine.stop(item.request, item.event.seq_id)
            yield piece

    async def whole(self) -> list[Choice]:
        """Return the whole text of every choice; of each prompt's samples the best."""
        texts: dict[int, str] = {}
        reasons: dict[int, str | None] = {}
        async for piece in self.pieces():
            texts[piece.index] = texts.get(piece.index, "") + piece.text
            reasons[piece.index] = piece.finish_reason
        best = [writer for prompt in self._prompts for writer in _best(prompt)]
        return [
            Choice(index, texts[writer.index], reasons[writer.index])
            for index, writer in enumerate(best)
        ]

    def cancel(self) -> None:
        """End what still runs, because nobody is there to read it."""
        for live in self._live:
            self._engine.cancel(live)

    @property
    def usage(self) -> Usage:
        """Tokens taken in and given out so far, those of samples that were not chosen too."""
        writers = [writer for prompt in self._prompts for writer in prompt.writers]
        return Usage(
            prompt_tokens=sum(prompt.request.num_prompt_tokens for prompt in self._prompts),
            completion_tokens=sum(writer.num_tokens for writer in writers),
        )

    def _raise_bad_end(self, item: RequestEvent) -> None:
        reason = item.event.finish_reason
        if reason is not None and reason not in GOOD_ENDS:
            raise _bad_end(reason, item.request)


def _best(prompt: PromptAnswers) -> Sequence[ChoiceWriter]:
    """Return the writers of the samples that the client gets, in the order in which it does."""
    wanted = prompt.request.sampling.n
    if wanted >= len(prompt.writers):
        return prompt.writers
    return sorted(prompt.writers, key=lambda w: w.mean_logprob, reverse=True)[:wanted]


def _bad_end(reason: FinishReason, live: LiveRequest) -> ApiError:
    if live.refused is not None:
        return _refusal(live.refused, live)
    if reason is FinishReason.CANCELLED:  # by the server's end; a client that left reads no more
        return _ended(RejectReason.SHUTTING_DOWN, live)
    if reason is FinishReason.TIMEOUT:
        return _ended(RejectReason.DEADLINE, live)
    return EngineFailedError()


def _ended(reason: RejectReason, live: LiveRequest) -> ApiError:
    """Return the error of a request that ran and was ended by the engine for a reason."""
    return _refusal(Refused(Rejection(reason, 0, 0, ""), MIN_SECONDS), live)


def _refusal(refused: Refused, live: LiveRequest) -> ApiError:
    seconds = refused.retry_after_seconds
    return refusal(refused.rejection, retry_after_seconds=seconds, owner=live.root)
