"""Numbers and times as words: units chosen by size, never more digits than help."""

from datetime import UTC, datetime
from html import escape

NANOSECONDS = 1_000_000_000
NOT_MEASURED = "—"


def seconds(value: float | None) -> str:
    """Write a duration given in seconds: `840 µs`, `12 ms`, `4.2 s`, `3 min 05 s`, `2 h 10 min`."""
    if value is None or value != value:
        return NOT_MEASURED
    if value < 0:
        return "-" + seconds(-value)
    if value == 0:
        return "0 s"
    if value < 0.0009995:
        return f"{value * 1e6:.0f} µs"
    if value < 0.9995:
        return f"{value * 1e3:.{1 if value < 0.00995 else 0}f} ms"
    if value < 59.95:
        return f"{value:.{2 if value < 9.995 else 1}f} s"
    return long_seconds(round(value))


def long_seconds(whole: int) -> str:
    """Write a duration of a minute or more in its two largest units."""
    days, rest = divmod(whole, 86_400)
    hours, rest = divmod(rest, 3600)
    minutes, left = divmod(rest, 60)
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {left:02d} s"


def nanoseconds(value: int | None) -> str:
    """Write a duration given in nanoseconds."""
    return NOT_MEASURED if value is None else seconds(value / NANOSECONDS)


def count(value: float | None) -> str:
    """Write a count with thin groups of three digits: `16 384`."""
    if value is None or value != value:
        return NOT_MEASURED
    return f"{value:,.0f}".replace(",", "\u202f")


def ratio(value: float | None) -> str:
    """Write a share as a percentage; never rounds a part up to the whole, nor down to nothing."""
    if value is None or value != value:
        return NOT_MEASURED
    if 0.9995 <= value < 1:
        return "99.9 %" if value < 0.99999 else "> 99.9 %"
    if 0 < value < 0.0005:
        return "< 0.1 %"
    percent = value * 100
    return f"{percent:.0f} %" if percent == int(percent) else f"{percent:.1f} %"


def num_bytes(value: float | None) -> str:
    """Write a size in binary units: `22.5 KiB`."""
    if value is None or value != value:
        return NOT_MEASURED
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{value:.0f} {unit}" if value == int(value) else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def money(value: float | None, currency: str) -> str:
    """Write an amount with enough digits that a small one does not vanish."""
    if value is None or value != value:
        return NOT_MEASURED
    digits = 2 if value == 0 or value >= 1 else 4 if value >= 0.001 else 6
    return f"{value:.{digits}f} {currency}"


def moment(t_ns: int) -> datetime:
    """Turn stored nanoseconds into a UTC time."""
    return datetime.fromtimestamp(t_ns / NANOSECONDS, tz=UTC)


def clock(t_ns: int | None) -> str:
    """Write the time of day, UTC, to the second."""
    return NOT_MEASURED if t_ns is None else f"{moment(t_ns):%H:%M:%S}"


def date_and_clock(t_ns: int | None) -> str:
    """Write date and time, UTC."""
    return NOT_MEASURED if t_ns is None else f"{moment(t_ns):%Y-%m-%d %H:%M:%S} UTC"


def words(name: str) -> str:
    """Turn an API name into words: `queue_full` becomes `queue full`."""
    return name.replace("_", " ")


def plain(text: object) -> str:
    """Escape a recorded string for HTML; whatever an engine put there stays text."""
    return escape(str(text), quote=True)


def unmarked(text: object) -> str:
    """Escape a recorded string for Streamlit's Markdown: no markup, colour, link or icon."""
    return "".join("\\" + sign if sign in "\\`*_{}[]()<>#+-.!|~:$&" else sign for sign in str(text))
