"""Types of command-line options: a value that cannot work is a usage error in plain words."""

from argparse import ArgumentTypeError
from math import inf
from typing import Final

_BYTES: Final = {"": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


def positive(text: str) -> int:
    """Read a whole number of 1 or more."""
    value = _whole(text)
    if value < 1:
        raise ArgumentTypeError(f"{text!r} is not a positive number")
    return value


def whole_number(text: str) -> int:
    """Read a whole number of 0 or more."""
    value = _whole(text)
    if value < 0:
        raise ArgumentTypeError(f"{text!r} is below 0")
    return value


def memory_size(text: str) -> int:
    """Read an amount of memory in bytes: a number, or one with KiB, MiB, GiB or TiB behind it."""
    number = text.rstrip("KMGTiB")
    try:
        num_bytes = int(float(number) * _BYTES[text[len(number) :]])
    except (KeyError, ValueError, OverflowError):
        num_bytes = 0
    if num_bytes < 1:
        raise ArgumentTypeError(f"{text!r} is no amount of memory, such as 8GiB or 500000000")
    return num_bytes


def port(text: str) -> int:
    """Read a port; 0 is any free one."""
    value = _whole(text)
    if not 0 <= value < 65_536:
        raise ArgumentTypeError(f"{text!r} is no port; they go from 0 to 65535")
    return value


def duration(text: str) -> float:
    """Read a duration of 0 or more, in whatever unit the option says."""
    try:
        value = float(text)
    except ValueError:
        value = inf
    if not 0 <= value < 1e9:
        raise ArgumentTypeError(f"{text!r} is not a time that can pass")
    return value


def positive_duration(text: str) -> float:
    """Read a duration above 0."""
    value = duration(text)
    if value == 0:
        raise ArgumentTypeError(f"{text!r} is not a time that can pass")
    return value


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is not a whole number") from None
