"""Which engines are to be scraped: `NAME=URL`, as people write it."""

from dataclasses import dataclass
from typing import Final

from agent.errors import ConfigError
from agent.scraped.address import PageAddress, parse_address

LONGEST_NAME: Final = 64
ACCEPTED: Final = "NAME=URL, such as chat=http://127.0.0.1:8000/metrics"


@dataclass(frozen=True, slots=True)
class ScrapeTarget:
    """A page, and what its engine is to be called."""

    name: str
    address: PageAddress


def parse_scrape_targets(text: str, where: str) -> tuple[ScrapeTarget, ...]:
    """Read `NAME=URL`, several separated by commas (one within an address is written %2C).

    Raises:
        ConfigError: A name or an address cannot be used. The message holds no credentials.
    """
    targets = [_target(part.strip(), where) for part in text.split(",") if part.strip()]
    names = [target.name for target in targets]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(where, name, "each name once")
    return tuple(targets)


def _target(text: str, where: str) -> ScrapeTarget:
    name, is_pair, url = text.partition("=")
    is_plain = name.isascii() and name.isprintable() and not set(name) & set("/ ")
    if not is_pair or not name or len(name) > LONGEST_NAME or not is_plain:
        raise ConfigError(where, "a text without a usable NAME", ACCEPTED)
    return ScrapeTarget(name, parse_address(url, f"{where} {name}"))
