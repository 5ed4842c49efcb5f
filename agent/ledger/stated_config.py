"""Read what an engine says of itself: a flat JSON object, of which nothing is taken on trust."""

import json
import math

from kvpulse.plain_text import MAX_CONFIG_BYTES, plain_text

Stated = str | int | float | bool | None


def read_stated_config(text: str) -> dict[str, object] | None:
    """Return the object's plain values, or None where the text is no such object.

    Texts are made printable, numbers that JSON has no form for become None, and what is
    neither (lists, objects) is left out.
    """
    if len(text) > MAX_CONFIG_BYTES:
        return None
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(said, dict):
        return None
    plain = (str, int, float, bool, type(None))
    return {plain_text(name): _plain(said[name]) for name in said if isinstance(said[name], plain)}


def _plain(value: Stated) -> Stated:
    if isinstance(value, str):
        return plain_text(value, most=MAX_CONFIG_BYTES)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
