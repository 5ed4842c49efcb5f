"""Send a generation as server-sent events, and end it when nobody reads them any more.

The status is sent with the first token and not before: a request that waits may still be refused,
and that is to be a status and not a line in a stream.
"""

import asyncio
from collections.abc import AsyncIterator

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from engine.server.generation import Generation
from engine.server.openai_errors import ApiError
from engine.server.openai_replies import DONE, ReplyForm, sse
from engine.server.request_body import until_disconnected


class EventStreamResponse(Response):
    """A response whose body is generated while it is sent."""

    media_type = "text/event-stream"

    def __init__(
        self,
        generation: Generation,
        form: ReplyForm,
        *,
        include_usage: bool,
    ) -> None:
        self._generation = generation
        self._form = form
        self._include_usage = include_usage
        self.status_code = 200
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the generation has ended or the client has gone.

        Raises:
            ApiError: The request was refused before its first token; nothing was sent.
        """
        sending = asyncio.ensure_future(self._send_all(send))
        leaving = asyncio.ensure_future(until_disconnected(receive))
        try:
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._generation.cancel()
            leaving.cancel()
            if not sending.done():
                sending.cancel()
        if not sending.cancelled() and sending.done():
            sending.result()

    async def _send_all(self, send: Send) -> None:
        await self._generation.begun()
        headers = self._generation.headers(self._form.request_id)
        self.init_headers({"cache-control": "no-cache", **headers})
        del self.headers["content-length"]
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        async for event in self._events():
            await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _events(self) -> AsyncIterator[bytes]:
        try:
            for index in range(self._generation.num_choices):
                opening = self._form.opening(index)
                if opening is not None:
                    yield sse(opening)
            async for piece in self._generation.pieces():
                yield sse(self._form.chunk(piece))
            if self._include_usage:
                yield sse(self._form.usage_chunk(self._generation.usage))
        except ApiError as error:
            yield sse(error.body())  # the status is sent already
        yield DONE
