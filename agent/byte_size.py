"""Sizes in bytes as people write them: `8GiB`, `500 MB`, `1048576`."""

import re
from typing import Final

UNITS: Final = {
    **{"": 1, "b": 1},
    **{"kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12},
    **{"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40},
}
_SIZE: Final = re.compile(r"\s*(\d{1,15}(?:\.\d{1,6})?)\s*([a-z]*)\s*", re.IGNORECASE)


def parse_bytes(text: str) -> int | None:
    """Return the number of bytes; None if the text is no size."""
    found = _SIZE.fullmatch(text)
    unit = UNITS.get(found[2].lower()) if found else None
    return None if found is None or unit is None else int(float(found[1]) * unit)


def bytes_text(number: int) -> str:
    """Return a size for people, in binary units."""
    size = float(number)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
