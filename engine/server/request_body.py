"""Read a request's JSON body within bounds, and notice when its client leaves."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Final

from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive

from engine.server.openai_errors import ApiError, InvalidFieldError
from engine.server.openai_fields import json_type

MAX_BODY_BYTES: Final = 4 << 20
# How much of a refused body is still read, and for how long: a client cut off while it sends
# sees a reset connection and never the refusal.
MAX_DISCARDED_BYTES: Final = 16 << 20
MAX_DISCARD_SECONDS: Final = 2.0


async def read_json_object(request: Request) -> dict[str, object]:
    """Return the body as a JSON object.

    Raises:
        ApiError: It is too large (413), is not JSON, or is not an object (400).
    """
    raw = await _read(request)
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError) as error:
        # The decoder's own message holds a position, never a piece of the body.
        problem = error.msg if isinstance(error, json.JSONDecodeError) else "it cannot be decoded"
        raise InvalidFieldError(f"The request body is not valid JSON: {problem}.") from None
    if not isinstance(body, dict):
        raise InvalidFieldError(f"The request body must be an object, got {json_type(body)}.")
    return body


async def _read(request: Request) -> bytes:
    declared = request.headers.get("content-length", "")
    body = bytearray()
    chunks = request.stream()
    try:
        if declared.isdigit() and int(declared) > MAX_BODY_BYTES:
            await _discard(chunks)
            raise _too_large()
        async for chunk in chunks:
            body += chunk
            if len(body) > MAX_BODY_BYTES:
                await _discard(chunks)
                raise _too_large()
    except ClientDisconnect:
        raise InvalidFieldError("The client left before its request was whole.") from None
    return bytes(body)


async def _discard(chunks: AsyncIterator[bytes]) -> None:
    """Read on without keeping anything, within bounds."""
    num_bytes = 0
    with suppress(TimeoutError):
        async with asyncio.timeout(MAX_DISCARD_SECONDS):
            async for chunk in chunks:
                num_bytes += len(chunk)
                if num_bytes > MAX_DISCARDED_BYTES:
                    return


def _too_large() -> ApiError:
    message = f"The request body is larger than the {MAX_BODY_BYTES} bytes that are taken here."
    return ApiError(413, message, headers={"connection": "close"})


async def until_disconnected(receive: Receive) -> None:
    """Return when the client has closed the connection (the body must have been read)."""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
