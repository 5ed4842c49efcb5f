"""Run one demonstration from start to summary."""

import asyncio
import json
import time
from typing import Final

from engine.demo.end_signals import END_SIGNALS, ignore_end_signals, interrupt_on_end_signals
from engine.demo.http_client import UnreachableError, get
from engine.demo.load import Load
from engine.demo.options import DemoOptions
from engine.demo.parts import Parts, Urls
from engine.demo.places import Places
from engine.demo.saying import say
from engine.demo.status_line import StatusLine
from engine.demo.summary import DemoSummary, accounts_of_crash, summarize
from engine.faults.registry import in_words

FOREVER_SECONDS: Final = 1e9
STATUS_SECONDS: Final = 0.5
DRAIN_SECONDS: Final = 10.0
SETTLE_SECONDS: Final = 2.5  # a leak is named after 2 steps and 1 s, by an audit each second


class Demo:
    """One demonstration; `say` is told what a person should know."""

    def __init__(self, options: DemoOptions, places: Places) -> None:
        self._options = options
        self._places = places
        self._started = time.monotonic()
        self._parts = Parts(options, places)

    def run(self) -> DemoSummary:
        """Start, send the workload, drain, stop, and account for every event."""
        try:
            urls = self._parts.wait_until_ready()
            self._say_where(urls)
            asyncio.run(self._drive(urls))
            self._parts.stop_engine()
            stored = self._parts.wait_until_stored()
        finally:
            ignore_end_signals()
            self._parts.stop()
        if self._parts.engine_crashed:
            accounts = accounts_of_crash(stored)
        else:
            accounts = json.loads(self._places.accounts.read_text())
        injected = [in_words(fault) for fault in self._options.faults]
        return summarize(accounts, stored, injected=injected)

    async def _drive(self, urls: Urls) -> None:
        """Send the workload until its time is over or somebody says stop, then let it drain."""
        load = Load(urls.engine, self._options.shape, seed=self._options.seed)
        sending = asyncio.ensure_future(load.run(self._options.seconds or FOREVER_SECONDS))
        loop = asyncio.get_running_loop()
        for number in END_SIGNALS:
            loop.add_signal_handler(number, sending.cancel)
        status = StatusLine(engine_url=urls.engine, agent_url=urls.agent)
        while not sending.done():
            await asyncio.wait([sending], timeout=STATUS_SECONDS)
            self._parts.check()
            if self._parts.engine_crashed:
                sending.cancel()
                continue
            await status.show()
        status.end()
        for number in END_SIGNALS:  # a second Ctrl-C does not wait for anything
            loop.remove_signal_handler(number)
        interrupt_on_end_signals()
        if not (sending.cancelled() or self._parts.engine_crashed):
            sending.result()
        if self._parts.engine_crashed:
            say("the engine was killed, as it was told; the agent stores what it left behind")
            return
        say("the clients are done; letting the engine drain and the agent store its last word")
        await self._drain(urls.engine)

    async def _drain(self, engine_url: str) -> None:
        """Wait until nothing runs, and then until the engine has stated that for a while."""
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + DRAIN_SECONDS
        while loop.time() < ends_at and await _is_busy(engine_url):
            await asyncio.sleep(0.1)
        await asyncio.sleep(SETTLE_SECONDS)

    def _say_where(self, urls: Urls) -> None:
        took = time.monotonic() - self._started
        lines = [
            f"ready in {took:.1f} s",
            f"engine     {urls.engine}/v1",
            f"agent      {urls.agent}/metrics",
        ]
        if urls.dashboard is not None:
            lines.append(f"dashboard  {urls.dashboard}")
        say("\n".join(lines))


async def _is_busy(engine_url: str) -> bool:
    try:
        accounts = (await get(f"{engine_url}/debug/accounts")).json()
    except UnreachableError:
        return False
    return bool(accounts.get("running") or accounts.get("waiting"))
