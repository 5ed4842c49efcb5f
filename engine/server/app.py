"""The HTTP application: API, health and accounts, behind the host guard."""

from collections.abc import Collection
from http import HTTPStatus

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from engine.server.engine_thread import EngineStoppedError, EngineThread
from engine.server.http_guard import HostGuard
from engine.server.openai_api import OpenAiApi
from engine.server.openai_errors import ApiError, EngineFailedError


def build_app(api: OpenAiApi, engine: EngineThread, *, allowed_hosts: Collection[str]) -> Starlette:
    """Put the endpoints together."""
    service = ServicePages(engine)
    return Starlette(
        routes=[
            Route("/v1/models", api.models),
            Route("/v1/completions", api.completions, methods=["POST"]),
            Route("/v1/chat/completions", api.chat_completions, methods=["POST"]),
            Route("/health", service.health),
            Route("/debug/accounts", service.accounts),
            Route("/debug/sharing", service.sharing),
            Route("/debug/preemptions", service.preemptions),
        ],
        middleware=[Middleware(HostGuard, allowed=allowed_hosts)],
        exception_handlers={
            ApiError: _api_error,
            EngineStoppedError: _engine_stopped,
            HTTPException: _http_error,
            Exception: _engine_stopped,
        },
    )


class ServicePages:
    """Answers what operators and the demonstration ask."""

    def __init__(self, engine: EngineThread) -> None:
        self._engine = engine

    async def health(self, request: Request) -> Response:
        """Answer 200 while the engine steps."""
        if self._engine.alive:
            return JSONResponse({"status": "ok"})
        return JSONResponse({"status": "the engine has stopped"}, 503)

    async def accounts(self, request: Request) -> Response:
        """Answer the engine's own accounts, taken between two steps."""
        return JSONResponse(await self._engine.accounts())

    async def sharing(self, request: Request) -> Response:
        """Answer the engine's sharing report, taken between two steps."""
        return JSONResponse(await self._engine.sharing())

    async def preemptions(self, request: Request) -> Response:
        """Answer who gave way lately, for whom and why, taken between two steps."""
        return JSONResponse({"preemptions": await self._engine.preemptions()})


async def _api_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return JSONResponse(error.body(), error.status, headers=error.headers)


async def _engine_stopped(request: Request, error: Exception) -> Response:
    return await _api_error(request, EngineFailedError())


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = f"{HTTPStatus(error.status_code).phrase}: {request.method} {request.url.path}"
    return await _api_error(request, ApiError(error.status_code, message))
