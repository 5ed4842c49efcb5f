"""Durations as people write them: `90s`, `30m`, `4h`, `7d`."""

import re
from typing import Final

UNIT_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
ACCEPTED: Final = "a number above 0 with s, m, h or d, such as 30m or 4h"
_FORM: Final = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)([smhd])")


def parse_seconds(text: str) -> float | None:
    """Return the seconds; None where the text is no duration above 0."""
    found = _FORM.fullmatch(text.strip().lower())
    seconds = float(found[1]) * UNIT_SECONDS[found[2]] if found else 0.0
    return seconds or None


def duration_text(seconds: float) -> str:
    """Say a duration in its largest fitting unit."""
    for unit, size in reversed(UNIT_SECONDS.items()):
        if seconds >= size:
            return f"{round(seconds / size, 1):g}{unit}"
    return f"{seconds:g}s"
