"""A server on a thread of the test: a real engine, real HTTP, a port of its own."""

import asyncio
import contextlib
import json
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.client import HTTPResponse
from pathlib import Path
from threading import Thread
from time import monotonic_ns

import httpx
import openai

from engine.server.engine_thread import EngineThread
from engine.server.listening import Listener, bind_exactly
from engine.server.loaded_model import LoadedModel, load_model
from engine.server.serve_options import ServeOptions, parse_options
from engine.server.served import ServedEngine
from engine.server.serving import Serving
from kvpulse.identity import KeyedHashes
from tests.waiting import wait_until

KEY = b"k" * 32


@dataclass
class RunningServer:
    """A server that answers at `url`; the engine belongs to its own thread."""

    url: str
    served: ServedEngine
    serving: Serving
    loop: asyncio.AbstractEventLoop
    thread: EngineThread
    failures: list[str]

    def client(self, **options: object) -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key="none", **options)

    def accounts(self) -> dict[str, object]:
        return httpx.get(f"{self.url}/debug/accounts").json()

    def post(self, body: dict[str, object], **headers: str) -> httpx.Response:
        """Ask for a completion; `_` in a header's name stands for `-`."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        url = f"{self.url}/v1/completions"
        return httpx.post(url, json=body, headers=named, timeout=60)

    def is_idle(self) -> bool:
        accounts = self.accounts()
        return accounts["running"] == accounts["waiting"] == accounts["active_blocks"] == 0

    def state(self) -> tuple[int, int]:
        """How many run and how many wait."""
        accounts = self.accounts()
        return accounts["running"], accounts["waiting"]

    def on_engine(self, act: Callable[[], object]) -> object:
        """Do something on the engine's thread, between two steps."""
        asking = asyncio.run_coroutine_threadsafe(self.thread.ask(act), self.loop)
        return asking.result(20)

    def check(self) -> None:
        """Let the engine recount pool and tables."""
        self.on_engine(self.served.engine.check)

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.serving.stop)


class Pending:
    """A request that was sent and whose answer nobody has read yet."""

    def __init__(self, server: RunningServer, body: dict[str, object], **headers: str) -> None:
        content = json.dumps(body).encode()
        self.socket = connect(server)
        self.socket.sendall(request_head(len(content), **headers) + content)

    def begun(self) -> HTTPResponse:
        """Wait for status and headers."""
        response = HTTPResponse(self.socket)
        response.begin()
        return response

    def leave(self) -> None:
        """Close the connection, whatever the server is doing."""
        self.socket.close()

    def __enter__(self) -> "Pending":
        return self

    def __exit__(self, *ignored: object) -> None:
        self.leave()


def connect(server: RunningServer) -> socket.socket:
    host, port = server.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=60)


def request_head(content_length: int, **headers: str) -> bytes:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    named |= {"Host": "localhost", "Content-Length": str(content_length)}
    lines = "".join(f"{name}: {value}\r\n" for name, value in named.items())
    return f"POST /v1/completions HTTP/1.1\r\n{lines}\r\n".encode()


def serve_options(folder: Path, *arguments: str) -> ServeOptions:
    base = ["--journal", str(folder / "journal"), "--key-file", str(folder / "key")]
    return parse_options([*base, *arguments], default_journal=folder, default_key=folder / "key")


@contextlib.contextmanager
def running_server(
    folder: Path, *arguments: str, model: LoadedModel | None = None
) -> Iterator[RunningServer]:
    """Serve with these command line arguments until the block ends."""
    options = serve_options(folder, *arguments)
    listener = bind_exactly("127.0.0.1", 0)
    started: list[RunningServer] = []
    loaded = model or load_model(options, wall_ns=monotonic_ns)
    ready = []

    async def run() -> None:
        failures: list[str] = []
        served = ServedEngine(options, loaded, KeyedHashes(KEY, options.tenants))
        thread = served.thread(on_failure=lambda: failures.append("engine"))
        await thread.start()
        serving = _serving(served, thread, listener, options, lambda: ready.append(True))
        loop = asyncio.get_running_loop()
        started.append(RunningServer(listener.url, served, serving, loop, thread, failures))
        await serving.run()

    runner = Thread(target=lambda: asyncio.run(run()))
    runner.start()
    try:
        wait_until(lambda: ready or not runner.is_alive())
        yield started[0]
    finally:
        with contextlib.suppress(RuntimeError, IndexError):
            started[0].stop()
        runner.join(20)
        listener.socket.close()
        assert not runner.is_alive()


def _serving(
    served: ServedEngine,
    thread: EngineThread,
    listener: Listener,
    options: ServeOptions,
    on_ready: object,
) -> Serving:
    app = served.app(thread)
    return Serving(thread, app, listener, drain_seconds=options.drain_seconds, on_ready=on_ready)
