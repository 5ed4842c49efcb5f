"""One API request on its way through the engine: its sequences, their tokens, their text."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from engine.model.chat_template import TemplateMessage
from engine.request import Request
from engine.server.engine_thread import EngineThread, LiveSequence
from engine.server.openai_errors import EngineFailedError, refusal
from engine.server.openai_replies import Choice, Usage
from engine.server.stop_strings import StopStrings
from engine.token_event import TokenEvent
from kvpulse.events import FinishReason, RejectReason


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


class ChoiceWriter:
    """Writes one choice: token events in, pieces of text out."""

    def __init__(self, index: int, text: TextStream, stops: StopStrings) -> None:
        self.index = index
        self.finished = False
        self.stopped_early = False  # by a stop string, which the engine does not know
        self.num_tokens = 0
        self._text = text
        self._stops = stops

    def push(self, event: TokenEvent) -> Choice | None:
        """Take one event; return the piece to send, if there is one."""
        if self.finished:
            return None
        reason = event.finish_reason
        if reason is not None and reason not in (FinishReason.STOP, FinishReason.LENGTH):
            raise _unfinished(reason)
        text = self._read_token(event)
        if self.stopped_early:
            return self._end(text, "stop")
        if reason is not None:
            tail = "" if reason is FinishReason.STOP else self._text.flush()
            cut = self._stops.push(tail)
            return self._end(text + cut.text + self._stops.flush(), reason.name.lower())
        return Choice(self.index, text, None) if text else None

    def _read_token(self, event: TokenEvent) -> str:
        if event.token_id < 0:
            return ""
        self.num_tokens += 1
        if event.finish_reason is FinishReason.STOP:
            return ""  # the model's end token is not text
        cut = self._stops.push(self._text.push(event.token_id))
        self.stopped_early = cut.stopped
        return cut.text

    def _end(self, text: str, reason: str) -> Choice:
        self.finished = True
        return Choice(self.index, text, reason)


class Generation:
    """The sequences of one API request, one for each of its prompts."""

    def __init__(
        self, engine: EngineThread, requests: Sequence[Request], writers: Sequence[ChoiceWriter]
    ) -> None:
        self._engine = engine
        self._requests = requests
        self._writers = writers
        self._events: asyncio.Queue[tuple[int, TokenEvent]] = asyncio.Queue()
        self._sequences: list[LiveSequence] = []

    async def submit(self) -> None:
        """Hand every prompt to the engine; raise the error of the first that it refuses."""
        for index, request in enumerate(self._requests):
            sequence = LiveSequence(index, self._events)
            self._sequences.append(sequence)
            rejection = await self._engine.submit(request, sequence)
            if rejection is not None:
                raise refusal(rejection.reason, needed=rejection.needed, limit=rejection.limit)

    @property
    def num_choices(self) -> int:
        """How many answers there will be."""
        return len(self._writers)

    @property
    def seq_ids(self) -> list[int]:
        """The engine's numbers of the sequences, once submitted."""
        return [sequence.seq_id for sequence in self._sequences]

    async def pieces(self) -> AsyncIterator[Choice]:
        """Yield the text of all choices as it is generated, until each has finished."""
        open_choices = len(self._writers)
        while open_choices:
            index, event = await self._events.get()
            writer = self._writers[index]
            piece = writer.push(event)
            if piece is None:
                continue
            if writer.finished:
                open_choices -= 1
            if writer.stopped_early:
                self._engine.stop(self._sequences[index])
            yield piece

    async def whole(self) -> list[Choice]:
        """Return every choice's whole text."""
        texts = ["" for _ in self._writers]
        reasons: list[str | None] = [None for _ in self._writers]
        async for piece in self.pieces():
            texts[piece.index] += piece.text
            reasons[piece.index] = piece.finish_reason
        return [Choice(i, text, reasons[i]) for i, text in enumerate(texts)]

    def cancel(self) -> None:
        """End what still runs, because nobody is there to read it."""
        for sequence in self._sequences:
            self._engine.cancel(sequence)

    @property
    def usage(self) -> Usage:
        """Tokens taken in and given out so far."""
        return Usage(
            prompt_tokens=sum(request.num_prompt_tokens for request in self._requests),
            completion_tokens=sum(writer.num_tokens for writer in self._writers),
        )


def _unfinished(reason: FinishReason) -> Exception:
    if reason is FinishReason.CANCELLED:
        return refusal(RejectReason.SHUTTING_DOWN, needed=0, limit=0)
    if reason is FinishReason.TIMEOUT:
        return refusal(RejectReason.DEADLINE, needed=0, limit=0)
    return EngineFailedError()
