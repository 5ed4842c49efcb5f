"""Requests that change something: what they must look like, and how their body is read.

A page in somebody's browser may send a form or plain text to 127.0.0.1 without asking. It may not
send JSON or a DELETE to another origin unless the server agrees, which we never do; and a browser
names its page's origin, which no program of ours does.
"""

import json
from typing import Final

from starlette.requests import Request

from agent.http.guard import MAX_BODY_BYTES

JSON_TYPE: Final = "application/json"


class ChangeRefused(Exception):
    """A request is not let in; `status` says why in HTTP's words."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


def check_no_page(request: Request) -> None:
    """Refuse what a browser's page sent.

    Raises:
        ChangeRefused: It names an origin.
    """
    if "origin" in request.headers or request.headers.get("sec-fetch-site") == "cross-site":
        raise ChangeRefused(403, "a page in a browser may change nothing here")


async def read_object(request: Request) -> dict[str, object]:
    """Read the body of a change: one JSON object of bounded size.

    Raises:
        ChangeRefused: It is too long, of another type, or no object.
    """
    check_no_page(request)
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != JSON_TYPE:
        raise ChangeRefused(415, f"send {JSON_TYPE}")
    body = bytearray()
    async for part in request.stream():  # a body without a stated length is bounded here
        body += part
        if len(body) > MAX_BODY_BYTES:
            raise ChangeRefused(413, f"a body of more than {MAX_BODY_BYTES} bytes is not read")
    try:
        said = json.loads(bytes(body))
    except (ValueError, RecursionError) as error:
        raise ChangeRefused(400, "the body is no JSON") from error
    if not isinstance(said, dict):
        raise ChangeRefused(400, "the body is no JSON object")
    return said
