"""The agent's settings: flags over `KVPULSE_*` variables over one TOML file over defaults.

`load_config` is pure: the environment comes in as a mapping, so that a test needs no real one. A
bad value raises `ConfigError` naming where it stood, the text found and what would be accepted.
"""

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from agent.byte_size import parse_bytes
from agent.errors import ConfigError
from agent.price import Price
from agent.scraped.target import ScrapeTarget, parse_scrape_targets
from agent.targets.target import ACCEPTED as ACCEPTED_TARGETS
from agent.targets.target import Target, parse_targets
from kvpulse.paths import journal_dir, store_path

LOG_LEVELS: Final = ("debug", "info", "warning", "error")
GPU_CHOICES: Final = ("auto", "off")
MIN_BUDGET_BYTES: Final = 1 << 20
PREFIX: Final = "KVPULSE_"
CONFIG_VARIABLE: Final = "KVPULSE_CONFIG"


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """Everything the agent process is told from outside."""

    journal: Path
    store: str  # path of an SQLite file, or an SQLAlchemy URL
    host: str = "127.0.0.1"
    port: int = 9464
    allowed_hosts: tuple[str, ...] = ()  # answered beside loopback names
    token_file: Path | None = None  # private file with the token that clients must send
    log_level: str = "info"
    commit_seconds: float = 0.25  # between two looks at a stream, each with its commit
    commit_events: int = 262_144  # at most in one commit; while behind, they follow without pause
    rescan_seconds: float = 1.0
    gpus: str = "auto"  # or off: NVML is not even loaded
    gpu_seconds: float = 5.0  # between two looks at the GPUs
    price_per_gpu_hour: float | None = None
    gpus_per_engine: int = 1
    currency: str = "USD"
    otlp_endpoint: str | None = None  # where OpenTelemetry metrics are pushed to
    otlp_seconds: float = 15.0  # between two pushes
    targets: tuple[Target, ...] = ()  # how fast users are to be served
    # Told when an incident opens and closes; its path may be a secret, so it is in no message.
    webhook_url: str | None = field(default=None, repr=False)
    webhook_secret_file: Path | None = None  # private file with the key that signs what is told
    scrape: tuple[ScrapeTarget, ...] = ()  # engines that are known by their metrics page
    scrape_seconds: float = 15.0  # between two looks at each page

    @property
    def price(self) -> Price | None:
        """Return what GPUs cost; None where nobody said."""
        if self.price_per_gpu_hour is None:
            return None
        return Price(self.price_per_gpu_hour, self.gpus_per_engine, self.currency)

    store_budget: int = 8 << 30  # bytes; the oldest detail goes when the store is larger
    prune_seconds: float = 60.0  # between two looks at the store's size
    watch_seconds: float = 10.0  # between two diagnoses of each engine


@dataclass(frozen=True, slots=True)
class Found:
    """One value as it was written, and where."""

    text: str
    where: str


def load_config(flags: Mapping[str, str | None], environ: Mapping[str, str]) -> AgentConfig:
    """Build the configuration from what the user wrote.

    Args:
        flags: Field name to the text given on the command line, None where it was not given;
            `config` names the TOML file.
        environ: The process environment; `KVPULSE_JOURNAL`, `KVPULSE_STORE`, … are looked up.

    Raises:
        ConfigError: A value, a name in the file, or the file itself cannot be used.
    """
    found = _from_file(flags.get("config") or environ.get(CONFIG_VARIABLE))
    for name in _PARSERS:
        variable = PREFIX + name.upper()
        if environ.get(variable):
            found[name] = Found(environ[variable], variable)
        flag = flags.get(name)
        if flag is not None:
            found[name] = Found(flag, "--" + name.replace("_", "-"))
    values: dict[str, Any] = {name: _PARSERS[name](value) for name, value in found.items()}
    if "webhook_url" in values and "webhook_secret_file" not in values:
        accepted = "a private file with the key that signs what webhook_url is told"
        raise ConfigError("webhook_secret_file", "", accepted)
    values.setdefault("journal", journal_dir(environ))
    values.setdefault("store", str(store_path(environ)))
    return AgentConfig(**values)


def _from_file(path: str | None) -> dict[str, Found]:
    if not path:
        return {}
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError("configuration file", path, "a readable TOML file") from error
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(path, str(error), "valid TOML") from error
    table = document.get("agent", {})
    if not isinstance(table, dict):
        raise ConfigError(f"{path}: agent", repr(table), "a table [agent]")
    for name in table:
        if name not in _PARSERS:
            raise ConfigError(f"{path}: [agent]", name, "one of " + ", ".join(_PARSERS))
    return {
        name: Found(
            ",".join(map(str, value)) if isinstance(value, list) else str(value),
            f"{path}: agent.{name}",
        )
        for name, value in table.items()
    }


def _text(found: Found) -> str:
    if not found.text.strip():
        raise ConfigError(found.where, found.text, "a text that is not empty")
    return found.text.strip()


def _path(found: Found) -> Path:
    return Path(_text(found)).expanduser()


def _names(found: Found) -> tuple[str, ...]:
    return tuple(name.strip() for name in found.text.split(",") if name.strip())


def _port(found: Found) -> int:
    return int(_number(found, int, 0, 65_535, "a port from 0 (any free one) to 65535"))


def _count(found: Found) -> int:
    return int(_number(found, int, 1, 10_000_000, "a whole number from 1 to 10000000"))


def _seconds(found: Found) -> float:
    return _number(found, float, 0.001, 3600, "seconds from 0.001 to 3600")


def _watch_seconds(found: Found) -> float:
    # Above it a condition that holds would be taken for one that lets up in between.
    return _number(found, float, 0.5, 12, "seconds from 0.5 to 12")


def _http_address(found: Found) -> str:
    accepted = "an http:// or https:// address such as http://127.0.0.1:4318/v1/metrics"
    try:
        parts = urlsplit(found.text)
    except ValueError as error:
        raise ConfigError(found.where, found.text, accepted) from error
    is_plain = found.text.isascii() and found.text.isprintable() and " " not in found.text
    if parts.scheme not in ("http", "https") or not parts.hostname or not is_plain:
        raise ConfigError(found.where, found.text, accepted)
    return found.text


def _targets(found: Found) -> tuple[Target, ...]:
    targets = parse_targets(found.text)
    if targets is None:
        raise ConfigError(found.where, found.text, ACCEPTED_TARGETS)
    return targets


def _webhook_url(found: Found) -> str:
    """Return it; in messages it is cut down to what is no secret."""
    accepted = (
        "an http:// or https:// address without a user name, such as https://example.org/hook"
    )
    try:
        url = _http_address(found)
        parts = urlsplit(url)
        is_good = parts.username is None and parts.password is None and parts.port != 0
    except (ConfigError, ValueError):
        is_good = False
    if not is_good:
        raise ConfigError(found.where, f"{len(found.text)} characters, not shown", accepted)
    return url


def _scrape_targets(found: Found) -> tuple[ScrapeTarget, ...]:
    return parse_scrape_targets(found.text, found.where)


def _price(found: Found) -> float:
    return _number(found, float, 0, 1_000_000, "a number from 0 to 1000000, such as 2.49")


def _gpu_count(found: Found) -> int:
    return int(_number(found, int, 1, 4096, "a whole number from 1 to 4096"))


def _currency(found: Found) -> str:
    if not (found.text.isascii() and found.text.isalpha() and len(found.text) <= 8):
        raise ConfigError(found.where, found.text, "a currency's code of letters, such as EUR")
    return found.text.upper()


def _number(
    found: Found, kind: Callable[[str], float], low: float, high: float, accepted: str
) -> float:
    try:
        value = kind(found.text)
    except ValueError as error:
        raise ConfigError(found.where, found.text, accepted) from error
    if not low <= value <= high:
        raise ConfigError(found.where, found.text, accepted)
    return value


def _budget(found: Found) -> int:
    size = parse_bytes(found.text)
    if size is None or not MIN_BUDGET_BYTES <= size < 1 << 60:
        raise ConfigError(found.where, found.text, "a size from 1MiB on, such as 500MB or 8GiB")
    return size


def _log_level(found: Found) -> str:
    return _one_of(found, LOG_LEVELS)


def _gpus(found: Found) -> str:
    return _one_of(found, GPU_CHOICES)


def _one_of(found: Found, names: tuple[str, ...]) -> str:
    name = found.text.lower()
    if name not in names:
        raise ConfigError(found.where, found.text, "one of " + ", ".join(names))
    return name


_PARSERS: Final[dict[str, Callable[[Found], object]]] = {
    "journal": _path,
    "store": _text,
    "host": _text,
    "port": _port,
    "allowed_hosts": _names,
    "token_file": _path,
    "log_level": _log_level,
    "commit_seconds": _seconds,
    "commit_events": _count,
    "rescan_seconds": _seconds,
    "gpus": _gpus,
    "gpu_seconds": _seconds,
    "price_per_gpu_hour": _price,
    "gpus_per_engine": _gpu_count,
    "currency": _currency,
    "otlp_endpoint": _http_address,
    "otlp_seconds": _seconds,
    "targets": _targets,
    "webhook_url": _webhook_url,
    "webhook_secret_file": _path,
    "scrape": _scrape_targets,
    "scrape_seconds": _seconds,
    "store_budget": _budget,
    "prune_seconds": _seconds,
    "watch_seconds": _watch_seconds,
}
assert set(_PARSERS) == {field.name for field in fields(AgentConfig)}
