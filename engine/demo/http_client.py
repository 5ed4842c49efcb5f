"""A small HTTP/1.1 client: JSON in and out, event streams, and leaving in the middle of one.

The demonstration runs where no HTTP library is installed, and clients that leave are part of it.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Final
from urllib.parse import urlsplit

from engine.errors import EngineError

MAX_HEADER_BYTES: Final = 65_536
_EVENT: Final = b"data: "


class UnreachableError(EngineError):
    """Nobody answered at an address, or the answer was cut short."""

    def __init__(self, url: str, problem: str) -> None:
        super().__init__(f"{url} cannot be reached: {problem}")
        self.url = url


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> dict[str, object]:
        """Return the body as a JSON object, empty if it is none."""
        try:
            value = json.loads(self.body)
        except ValueError:
            return {}
        return value if isinstance(value, dict) else {}


class Exchange:
    """One request on a connection of its own; leaving the `async with` closes the connection."""

    def __init__(
        self, url: str, *, body: object = None, headers: Mapping[str, str] | None = None
    ) -> None:
        self._url = url
        self._body = None if body is None else json.dumps(body).encode()
        self._request_headers = dict(headers or {})
        self.status = 0
        self.headers: dict[str, str] = {}

    async def __aenter__(self) -> "Exchange":
        try:
            await self._open()
        except (OSError, ValueError, asyncio.IncompleteReadError) as error:
            raise UnreachableError(self._url, str(error)) from error
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._writer.close()

    async def _open(self) -> None:
        parts = urlsplit(self._url)
        host, port = parts.hostname or "127.0.0.1", parts.port or 80
        self._reader, self._writer = await asyncio.open_connection(
            host, port, limit=MAX_HEADER_BYTES
        )
        try:
            self._writer.write(
                self._head(parts.path or "/", f"{host}:{port}") + (self._body or b"")
            )
            head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        except BaseException:
            self._writer.close()
            raise
        status_line, *lines = head.rstrip().split("\r\n")
        self.status = int(status_line.split()[1])
        self.headers = {name.lower(): value.strip() for name, _, value in _split(lines)}

    def _head(self, path: str, host: str) -> bytes:
        lines = {"Host": host, "Connection": "close", **self._request_headers}
        if self._body is not None:
            lines |= {"Content-Type": "application/json", "Content-Length": str(len(self._body))}
        method = "GET" if self._body is None else "POST"
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode("latin-1")

    async def read(self) -> Answer:
        """Read the whole body."""
        body = b"".join([part async for part in self._parts()])
        return Answer(self.status, self.headers, body)

    async def events(self) -> AsyncIterator[str]:
        """Read the data of each server-sent event."""
        pending = b""
        async for part in self._parts():
            *lines, pending = (pending + part).split(b"\n")
            for line in lines:
                if line.startswith(_EVENT):
                    yield line.removeprefix(_EVENT).decode()

    async def _parts(self) -> AsyncIterator[bytes]:
        try:
            if self.headers.get("transfer-encoding") == "chunked":
                while size := int(await self._reader.readuntil(b"\r\n"), 16):
                    yield (await self._reader.readexactly(size + 2))[:-2]
            else:
                yield await self._reader.readexactly(int(self.headers.get("content-length", 0)))
        except (OSError, ValueError, asyncio.IncompleteReadError) as error:
            raise UnreachableError(self._url, str(error)) from error


async def get(url: str) -> Answer:
    """Fetch one address."""
    async with Exchange(url) as exchange:
        return await exchange.read()


def _split(lines: list[str]) -> list[tuple[str, str, str]]:
    return [line.partition(":") for line in lines]
