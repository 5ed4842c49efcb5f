"""Moments and durations as people write them on a command line. Pure."""

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Final

from agent.errors import ConfigError

NS: Final = 1_000_000_000
DURATION: Final = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)(s|m|h|d)")
SECONDS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
TIME_FORMS: Final = (
    "2026-11-30T16:00:00Z (UTC where no zone is given), seconds since 1970, nanoseconds since 1970 "
    "such as 1790000000000000000ns, or a time before the newest event such as -90s, -5m, -2h"
)
DURATION_FORMS: Final = "a duration such as 90s, 15m, 2h, 30d"
_MOST_NS: Final = 1 << 62
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def parse_moment(flag: str, text: str, *, newest_ns: int) -> int:
    """Read a moment as wall-clock ns: absolute, or so long before the newest event.

    Raises:
        ConfigError: It is neither.
    """
    ago = duration_ns(text[1:]) if text.startswith("-") else None
    moment = newest_ns - ago if ago is not None else _from_number(text)
    if moment is None:
        moment = _from_iso(text)
    if moment is None or not 0 <= moment < _MOST_NS:
        raise ConfigError(flag, text, TIME_FORMS)
    return moment


def parse_duration(flag: str, text: str) -> int:
    """Read a duration as ns.

    Raises:
        ConfigError: It is none.
    """
    duration = duration_ns(text)
    if duration is None:
        raise ConfigError(flag, text, DURATION_FORMS)
    return duration


def duration_ns(text: str) -> int | None:
    """Return a duration such as `90s` in ns; None if the text is none."""
    found = DURATION.fullmatch(text)
    return int(Decimal(found[1]) * SECONDS[found[2]] * NS) if found else None


def joined(argv: list[str], *flags: str) -> list[str]:
    """Return arguments with `--at -5m` as one, which argparse would take for another flag."""
    found: list[str] = []
    for argument in argv:
        if found and found[-1] in flags and duration_ns(argument.removeprefix("-")) is not None:
            found[-1] = f"{found[-1]}={argument}"
        else:
            found.append(argument)
    return found


def utc(at_ns: int) -> str:
    """Return a moment for people, to the millisecond."""
    return (_EPOCH + timedelta(microseconds=at_ns // 1_000)).isoformat(timespec="milliseconds")


def _from_number(text: str) -> int | None:
    """Read seconds, or nanoseconds with `ns` behind: exactly, as a float could not."""
    digits, unit = (text[:-2], 1) if text.endswith("ns") else (text, NS)
    try:
        number = Decimal(digits)
    except InvalidOperation:
        return None
    # An exponent of a billion is not multiplied out to be told that it is too large.
    return int(number * unit) if number.is_finite() and number.adjusted() < 19 else None


def _from_iso(text: str) -> int | None:
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return (moment - _EPOCH) // timedelta(microseconds=1) * 1_000
    except (ValueError, OverflowError):
        return None
