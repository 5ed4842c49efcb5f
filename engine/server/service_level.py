"""How urgent a request is, and how long it may take: from its body and its headers."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from engine.server.openai_errors import InvalidFieldError
from engine.server.openai_fields import Fields

TIER_HEADER: Final = "x-kvpulse-tier"
TIMEOUT_HEADER: Final = "x-kvpulse-timeout-ms"
QUEUE_TIMEOUT_HEADER: Final = "x-kvpulse-queue-timeout-ms"
NS_PER_MS: Final = 1_000_000
MAX_TIMEOUT_MS: Final = 7 * 24 * 3600 * 1000
PRIORITY_LIMIT: Final = 1 << 31  # what the journal can hold


class Tier(IntEnum):
    """Which of the two queues a request stands in."""

    INTERACTIVE = 0
    BATCH = 1


_SERVICE_TIERS: Final[Mapping[str, Tier]] = {
    "auto": Tier.INTERACTIVE,
    "default": Tier.INTERACTIVE,
    "flex": Tier.BATCH,
}
_TIERS: Final[Mapping[str, Tier]] = {tier.name.lower(): tier for tier in Tier}


@dataclass(frozen=True, slots=True)
class ServiceLevel:
    """What a request may claim.

    Attributes:
        priority: Lower is sooner, as in vLLM.
        timeout_ns: Until it has ended, from its first byte on; 0 leaves it to the engine's policy.
        queue_timeout_ns: The same until it first runs.
    """

    priority: int = 0
    tier: Tier = Tier.INTERACTIVE
    timeout_ns: int = 0
    queue_timeout_ns: int = 0


def parse_service_level(body: Mapping[str, object], headers: Mapping[str, str]) -> ServiceLevel:
    """Read body and headers; raises InvalidFieldError for what cannot be meant."""
    fields = Fields(body)
    return ServiceLevel(
        priority=_priority(fields),
        tier=_tier(fields, headers),
        timeout_ns=_timeout_ns(headers, TIMEOUT_HEADER),
        queue_timeout_ns=_timeout_ns(headers, QUEUE_TIMEOUT_HEADER),
    )


def _priority(fields: Fields) -> int:
    value = fields.integer("priority") or 0
    if not -PRIORITY_LIMIT <= value < PRIORITY_LIMIT:
        raise InvalidFieldError("priority must fit into 32 bits.", param="priority")
    return value


def _tier(fields: Fields, headers: Mapping[str, str]) -> Tier:
    """Return the header's tier, else that of the body's `service_tier`."""
    asked = fields.text("service_tier")
    if asked is not None and asked not in _SERVICE_TIERS:
        message = f"service_tier must be one of {', '.join(_SERVICE_TIERS)}."
        raise InvalidFieldError(message, param="service_tier")
    named = headers.get(TIER_HEADER)
    if named is None:
        return _SERVICE_TIERS[asked or "auto"]
    if named not in _TIERS:
        message = f"The header {TIER_HEADER} must be one of {', '.join(_TIERS)}."
        raise InvalidFieldError(message, param=TIER_HEADER)
    return _TIERS[named]


def _timeout_ns(headers: Mapping[str, str], name: str) -> int:
    text = headers.get(name)
    if text is None:
        return 0
    if not (text.isascii() and text.isdecimal() and 1 <= _small(text) <= MAX_TIMEOUT_MS):
        message = f"The header {name} must be a whole number from 1 to {MAX_TIMEOUT_MS}."
        raise InvalidFieldError(message, param=name)
    return int(text) * NS_PER_MS


def _small(text: str) -> int:
    """Return the number; one of absurdly many digits is as good as the first too large one."""
    return int(text) if len(text) < 20 else MAX_TIMEOUT_MS + 1
