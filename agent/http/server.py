"""Runs the agent's HTTP application on a thread of its own beside the reading loop."""

import asyncio
import socket
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from agent.errors import AgentError

PORTS_TRIED: Final = 20
MAX_CONNECTIONS: Final = 64
KEEP_ALIVE_SECONDS: Final = 15
STOP_SECONDS: Final = 3.0
LOOK_SECONDS: Final = 1.0  # whether to stop; the header `date` is renewed, too


class PortError(AgentError):
    """No port could be listened on."""

    def __init__(self, host: str, port: int, why: str) -> None:
        super().__init__(
            f"cannot listen on {host}, ports {port} to {port + PORTS_TRIED - 1}: {why}; "
            "choose another with --port or --host"
        )
        self.host = host
        self.port = port


@dataclass(frozen=True, slots=True)
class HttpServer:
    """A server that answers until it is stopped."""

    host: str
    port: int
    _server: "_QuietServer"
    _thread: threading.Thread

    @property
    def url(self) -> str:
        """Where a person on this machine finds it."""
        host = "127.0.0.1" if self.host in ("0.0.0.0", "::") else self.host
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    def stop(self) -> None:
        """Stop answering; connections that are busy get a moment."""
        self._server.ask_to_stop()
        self._thread.join(STOP_SECONDS)


class _QuietServer(uvicorn.Server):
    """Looks around once a second, and at once when asked to stop.

    uvicorn's own loop does ten times a second: a twentieth of what the agent costs.
    """

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._asked_to_stop = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None  # None: not running yet

    async def main_loop(self) -> None:
        """Serve until it is time to stop."""
        self._loop = asyncio.get_running_loop()
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                await asyncio.wait_for(self._asked_to_stop.wait(), LOOK_SECONDS)

    def ask_to_stop(self) -> None:
        """Let `main_loop` end; for any thread."""
        self.should_exit = True
        if self._loop is not None:
            with suppress(RuntimeError):  # it has ended already
                self._loop.call_soon_threadsafe(self._asked_to_stop.set)


def start_http_server(app: ASGIApp, *, host: str, port: int) -> HttpServer:
    """Serve the application on `port`, or on the next free one after it (0: any free one).

    Raises:
        PortError: None of the ports tried can be listened on.
    """
    listener = _listen(host, port)
    config = uvicorn.Config(
        app,
        access_log=False,
        log_config=None,
        log_level="warning",
        lifespan="off",
        server_header=False,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=1,
    )
    server = _QuietServer(config)
    thread = threading.Thread(
        target=server.run, args=([listener],), name="kvpulse-http", daemon=True
    )
    thread.start()
    bound_port = listener.getsockname()[1]
    return HttpServer(host, bound_port, server, thread)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    why = "every one is taken"
    for candidate in range(port, port + PORTS_TRIED) if port else (0,):
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, candidate))
            listener.listen(MAX_CONNECTIONS)
        except OSError as error:
            listener.close()
            why = error.strerror or str(error)
            continue
        return listener
    raise PortError(host, port, why)
