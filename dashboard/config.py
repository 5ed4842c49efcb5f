"""What the dashboard was told at its start: which store, which agent, what a GPU hour costs."""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from agent.targets.target import ACCEPTED, Target, parse_targets
from dashboard.errors import ConfigError

STORE_VARIABLE = "KVPULSE_STORE"
AGENT_VARIABLE = "KVPULSE_AGENT"
PRICE_VARIABLE = "KVPULSE_PRICE_PER_HOUR"
CURRENCY_VARIABLE = "KVPULSE_CURRENCY"
TARGETS_VARIABLE = "KVPULSE_TARGETS"
TOKEN_FILE_VARIABLE = "KVPULSE_TOKEN_FILE"
DEFAULT_AGENT = "http://127.0.0.1:9464"


@dataclass(frozen=True, slots=True)
class DashboardConfig:
    """Settings of one dashboard process.

    Attributes:
        agent_url: Where what changes something is asked for; None: nobody said, so this machine's.
        token_file: Holds the token that the agent wants; None: it wants none.
        targets: How fast users are to be served; a missed one is evidence of a verdict.
    """

    store: str
    agent_url: str | None = None
    token_file: Path | None = None
    price_per_hour: float | None = None
    currency: str = "USD"
    targets: tuple[Target, ...] = ()


def default_store(environ: Mapping[str, str]) -> Path:
    """Return where an agent keeps its store unless told otherwise."""
    state = environ.get("XDG_STATE_HOME") or Path(environ.get("HOME", "~")) / ".local" / "state"
    return Path(state).expanduser() / "kvpulse" / "kvpulse.db"


def read_price(name: str, text: str | None) -> float | None:
    """Return a price per engine hour; None when nobody gave one."""
    if not text:
        return None
    try:
        price = float(text)
    except ValueError:
        price = math.nan
    if not math.isfinite(price) or price < 0:
        raise ConfigError(name, text, "a number of 0 or more, such as 2.49")
    return price


def read_targets(name: str, text: str | None) -> tuple[Target, ...]:
    """Return the targets; none when nobody gave any."""
    targets = parse_targets(text) if text else ()
    if targets is None:
        raise ConfigError(name, str(text), ACCEPTED)
    return targets


def read_config(environ: Mapping[str, str] | None = None) -> DashboardConfig:
    """Build the settings from the environment, which `kvpulse dashboard` fills from its flags."""
    environ = os.environ if environ is None else environ
    token_file = environ.get(TOKEN_FILE_VARIABLE)
    return DashboardConfig(
        store=environ.get(STORE_VARIABLE) or str(default_store(environ)),
        agent_url=environ.get(AGENT_VARIABLE) or None,
        token_file=Path(token_file).expanduser() if token_file else None,
        price_per_hour=read_price(PRICE_VARIABLE, environ.get(PRICE_VARIABLE)),
        currency=environ.get(CURRENCY_VARIABLE) or "USD",
        targets=read_targets(TARGETS_VARIABLE, environ.get(TARGETS_VARIABLE)),
    )
