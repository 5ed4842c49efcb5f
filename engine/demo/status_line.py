"""One line that says how the demonstration is doing, rewritten in place on a terminal."""

import contextlib
import re
import shutil
import sys
import time
from typing import Final, TextIO

from engine.demo.http_client import UnreachableError, get

LINES_EVERY_SECONDS: Final = 5.0  # where a line cannot be rewritten
_LOST: Final = re.compile(rb"^kvpulse_events_lost_total\{[^}]*\} (\S+)$", re.MULTILINE)


class StatusLine:
    """Asks engine and agent, and writes what they say."""

    def __init__(self, *, engine_url: str, agent_url: str, out: TextIO = sys.stderr) -> None:
        self._engine_url = engine_url
        self._agent_url = agent_url
        self._out = out
        self._rewrites = out.isatty()
        self._started = time.monotonic()
        self._next_line = 0.0
        self._last_tokens = 0
        self._last_asked = self._started

    async def show(self) -> None:
        """Write the present state."""
        now = time.monotonic()
        if not self._rewrites and now < self._next_line:
            return
        self._next_line = now + LINES_EVERY_SECONDS
        try:
            accounts = (await get(f"{self._engine_url}/debug/accounts")).json()
            lost = lost_events((await get(f"{self._agent_url}/metrics")).body)
        except UnreachableError:
            return
        if "output_tokens" not in accounts:
            return
        state = describe(accounts, self._rate(accounts, now), lost)
        self._write(f"{now - self._started:3.0f}s  {state}")

    def _write(self, text: str) -> None:
        if self._rewrites:  # a line that wraps could not be rewritten
            room = shutil.get_terminal_size().columns - 1
            self._out.write(f"\r\x1b[K{text[:room]}")
        else:
            self._out.write(f"{text}\n")
        self._out.flush()

    def end(self) -> None:
        """Leave the line behind."""
        if self._rewrites:
            with contextlib.suppress(OSError):  # the terminal may be gone
                self._out.write("\n")
                self._out.flush()

    def _rate(self, accounts: dict[str, object], now: float) -> float:
        tokens = _number(accounts, "output_tokens")
        rate = (tokens - self._last_tokens) / max(now - self._last_asked, 1e-3)
        self._last_tokens, self._last_asked = tokens, now
        return rate


def describe(accounts: dict[str, object], tokens_per_second: float, lost: int) -> str:
    """Put an engine's accounts into one line."""
    rejected = accounts.get("rejected_by_reason")
    num_rejected = sum(rejected.values()) if isinstance(rejected, dict) else 0
    return (
        f"active {_number(accounts, 'active_blocks')} cached {_number(accounts, 'cached_blocks')} "
        f"free {_number(accounts, 'free_blocks')} | waiting {_number(accounts, 'waiting')} | "
        f"{tokens_per_second:.0f} tokens/s | rejected {num_rejected} | lost {lost}"
    )


def lost_events(metrics: bytes) -> int:
    """Add up the lost events of an agent's metrics page."""
    return int(sum(float(value) for value in _LOST.findall(metrics)))


def _number(accounts: dict[str, object], name: str) -> int:
    value = accounts.get(name)
    return value if isinstance(value, int) else 0
