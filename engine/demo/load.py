"""Drive the workload over HTTP: patient clients, impatient ones, bursts, and misfits."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from engine.demo.http_client import Exchange
from engine.demo.workload import Body, DemoShape, Prompts

CHAT_TENANT: Final = "harbour-chat"
SEARCH_TENANT: Final = "town-search"
REPORT_TENANT: Final = "report-desk"
TENANTS: Final = (CHAT_TENANT, SEARCH_TENANT, REPORT_TENANT)

FIRST_MISFIT_SECONDS: Final = 2.0
MISFIT_EVERY_SECONDS: Final = 8.0
FIRST_BURST_SECONDS: Final = 4.0
LONGEST_FAREWELL_SECONDS: Final = 4.0


@dataclass(slots=True)
class LoadCounts:
    """What the clients saw."""

    sent: int = 0
    left: int = 0
    by_status: Counter[int] = field(default_factory=Counter)


class Load:
    """The clients of one demonstration."""

    def __init__(self, url: str, shape: DemoShape, *, seed: int) -> None:
        self.counts = LoadCounts()
        self._url = url
        self._shape = shape
        self._prompts = Prompts(shape, seed)
        self._ends_at = 0.0

    async def run(self, seconds: float) -> None:
        """Send for this long, then let what is under way come to its end, within reason."""
        self._ends_at = time.monotonic() + seconds
        tasks = [asyncio.ensure_future(client) for client in self._clients()]
        try:
            await asyncio.wait(tasks, timeout=seconds + LONGEST_FAREWELL_SECONDS)
        finally:
            for task in tasks:
                task.cancel()
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise outcome

    def _clients(self) -> list[Awaitable[None]]:
        shape = self._shape
        return [
            *(self._client(self._chat) for _ in range(shape.chat_clients)),
            *(self._client(self._search) for _ in range(shape.search_clients)),
            *(self._client(self._report) for _ in range(shape.report_clients)),
            self._at_intervals(self._misfits, FIRST_MISFIT_SECONDS, MISFIT_EVERY_SECONDS),
            self._at_intervals(self._burst, FIRST_BURST_SECONDS, shape.burst_every_seconds),
        ]

    async def _client(self, send: Callable[[], Awaitable[None]]) -> None:
        while await self._pause(self._prompts.think_seconds()):
            await send()

    async def _at_intervals(
        self, send: Callable[[], Awaitable[None]], first_seconds: float, every_seconds: float
    ) -> None:
        wait = first_seconds
        while await self._pause(wait):
            await send()
            wait = every_seconds

    async def _pause(self, seconds: float) -> bool:
        """Sleep; return whether there is still time for another request."""
        left = self._ends_at - time.monotonic()
        if seconds >= left:
            return False
        await asyncio.sleep(seconds)
        return True

    async def _chat(self) -> None:
        patience = self._prompts.patience_tokens() if self._prompts.leaves_early() else None
        await self._read_stream("/v1/chat/completions", self._prompts.chat(), CHAT_TENANT, patience)

    async def _search(self) -> None:
        await self._ask("/v1/completions", self._prompts.search(), SEARCH_TENANT)

    async def _report(self) -> None:
        patience = self._prompts.patience_tokens() if self._prompts.leaves_early() else None
        body = {**self._prompts.report(), "service_tier": "flex"}  # the batch tier
        await self._read_stream("/v1/completions", body, REPORT_TENANT, patience)

    async def _misfits(self) -> None:
        await self._ask("/v1/completions", self._prompts.over_long(), REPORT_TENANT)
        await self._ask("/v1/completions", self._prompts.never_fitting(), REPORT_TENANT)

    async def _burst(self) -> None:
        await asyncio.gather(*(self._search() for _ in range(self._shape.burst_requests)))

    async def _ask(self, path: str, body: Body, tenant: str) -> None:
        async with self._open(path, body, tenant) as exchange:
            await exchange.read()
        self.counts.by_status[exchange.status] += 1

    async def _read_stream(self, path: str, body: Body, tenant: str, patience: int | None) -> None:
        """Read a stream to its end, or leave it after `patience` pieces."""
        async with self._open(path, {**body, "stream": True}, tenant) as exchange:
            num_pieces = 0
            async for _ in exchange.events():
                num_pieces += 1
                if patience is not None and num_pieces >= patience:
                    self.counts.left += 1
                    break
        self.counts.by_status[exchange.status] += 1

    def _open(self, path: str, body: Body, tenant: str) -> Exchange:
        self.counts.sent += 1
        return Exchange(self._url + path, body=body, headers={"x-kvpulse-tenant": tenant})
