"""Put engine, API and HTTP server together, and run them until somebody says stop."""

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator
from typing import Final

import uvicorn
from starlette.applications import Starlette

from engine.server.accept_time import TimedHttpProtocol
from engine.server.engine_thread import EngineThread
from engine.server.listening import Listener

GRACE_SECONDS: Final = 3.0  # for answers to leave after the engine has ended them


class HttpServer(uvicorn.Server):
    """uvicorn without signal handlers of its own, that says when it is ready."""

    def __init__(
        self, app: Starlette, *, grace_seconds: float, on_ready: Callable[[], None]
    ) -> None:
        config = uvicorn.Config(
            app,
            loop="asyncio",
            http=TimedHttpProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,  # paths may be logged by a proxy; nothing of a request is logged here
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=max(1, round(grace_seconds)),
        )
        super().__init__(config)
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start listening, then say so."""
        await super().startup(sockets)
        self._on_ready()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to whoever runs the process."""
        yield


class Serving:
    """One server process: its engine thread and its HTTP server."""

    def __init__(
        self,
        engine: EngineThread,
        app: Starlette,
        listener: Listener,
        *,
        drain_seconds: float,
        on_ready: Callable[[], None],
    ) -> None:
        self._engine = engine
        self._listener = listener
        self._drain_seconds = drain_seconds
        self._server = HttpServer(
            app, grace_seconds=drain_seconds + GRACE_SECONDS, on_ready=on_ready
        )
        self._closing: asyncio.Task[None] | None = None

    def stop(self) -> None:
        """Begin to end: refuse new requests at once, let live ones run on for a moment."""
        self._server.should_exit = True
        if self._closing is None:
            self._closing = asyncio.ensure_future(
                self._engine.close(drain_seconds=self._drain_seconds)
            )

    async def run(self) -> None:
        """Serve until `stop`."""
        try:
            await self._server.serve(sockets=[self._listener.socket])
        finally:
            self.stop()
            assert self._closing is not None, "stop makes it"
            await self._closing
