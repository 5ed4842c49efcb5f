"""Turn what an API refuses into an answer with its reason."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from agent.errors import AgentError
from agent.http.changes import ChangeRefused

Handler = Callable[[Request], Awaitable[Response]]
UNAVAILABLE: Final = 503


def told(handler: Handler, statuses: Mapping[type[AgentError], int]) -> Handler:
    """Return a handler that answers errors of ours with `{"error": …}`.

    Args:
        statuses: HTTP status by error; of one that is not named: 503.
    """

    async def answer(request: Request) -> Response:
        try:
            return await handler(request)
        except ChangeRefused as error:
            return JSONResponse({"error": str(error)}, status_code=error.status)
        except AgentError as error:
            status = statuses.get(type(error), UNAVAILABLE)
            return JSONResponse({"error": str(error)}, status_code=status)

    return answer
